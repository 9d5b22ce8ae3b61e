#include "tools/sluice/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/host/cpus.h"
#include "engine/host/memory.h"
#include "tools/sluice/progress.h"

namespace sluice {
namespace {

using engine::LoaderCounts;
using nlohmann::ordered_json;

constexpr std::array<const char*, scheduler::kKinds> kKindNames = {"trunk", "experts", "embedding"};

struct Totals {
  std::uint64_t asked = 0, used = 0, alignment = 0, unused = 0;
  double stall_seconds = 0;
};

Totals total(const LoaderCounts& counts) {
  Totals sum;
  for (const LoaderCounts::PerKind& kind : counts.by_kind) {
    sum.asked += kind.asked_bytes;
    sum.used += kind.used_bytes;
    sum.alignment += kind.alignment_bytes;
    sum.unused += kind.unused_bytes();
    sum.stall_seconds += 1e-9 * static_cast<double>(kind.stall_ns);
  }
  return sum;
}

const char* stop_text(const RunReport& report) {
  if (!report.status) {
    return report.status.error().code == io::Errc::interrupted ? "interrupted" : "error";
  }
  switch (report.generated.stop) {
    case engine::StopReason::end_of_text:
      return "end of text";
    case engine::StopReason::context:
      return "context full";
    case engine::StopReason::length:
      return "length";
  }
  return "";
}

// Of the tokens after the first, which share the time with no prompt.
double decode_seconds_per_token(const engine::Generated& generated) {
  if (generated.tokens.size() < 2) return 0;
  double sum = 0;
  for (std::size_t i = 1; i < generated.tokens.size(); ++i) sum += generated.tokens[i].seconds;
  return sum / static_cast<double>(generated.tokens.size() - 1);
}

std::uint64_t bytes_per_token(const engine::Generated& generated) {
  if (generated.tokens.size() < 2) return 0;
  std::uint64_t sum = 0;
  for (std::size_t i = 1; i < generated.tokens.size(); ++i) sum += generated.tokens[i].asked_bytes;
  return sum / (generated.tokens.size() - 1);
}

double device_rate(const LoaderCounts& counts) {
  const double busy = 1e-9 * static_cast<double>(counts.busy_ns);
  return busy > 0 ? static_cast<double>(counts.reader.n_read_bytes) / busy : 0;
}

// Why a rate here is not a disk's; empty if it is.
std::string not_a_disk(engine::Session& session) {
  if (session.checkpoint().census.hole_bytes > 0) return "holes in the files, not a disk's rate";
  if (!session.files().direct()) return "through the page cache, not a disk's rate";
  if (session.files().filesystem().find("memory") != std::string::npos) {
    return "files in memory, not a disk's rate";
  }
  return {};
}

ordered_json configuration(const RunReport& report) {
  const engine::SessionOptions& o = report.session_options;
  return {{"model", report.options.model.string()},
          {"format", format_name(report.session.checkpoint())},
          {"ram", report.options.ram},
          {"budget_bytes", o.budget_bytes ? ordered_json(*o.budget_bytes) : ordered_json(nullptr)},
          {"io", report.options.io},
          {"access", o.access == io::Access::buffered ? "buffered"
                     : o.access == io::Access::direct ? "direct"
                                                      : "direct where possible"},
          {"queue_depth", o.loader.depth},
          {"request_bytes", o.loader.request_bytes},
          {"ring_bytes", report.session.plan().n_slots[0] * report.session.plan().slot_bytes[0]},
          {"threads", o.n_threads},
          {"isa", std::string(o.kernels->isa)},
          {"prefill_chunk", o.prefill_chunk},
          {"context", o.context},
          {"latent_norm_eps", report.session.checkpoint().config.mla_latent_norm_eps},
          {"allow_holes", report.options.allow_holes}};
}

ordered_json host() {
  const engine::HostInfo info = engine::describe_host();
  return {{"kernel", info.kernel},       {"cpu", info.cpu},
          {"cpus", info.n_cpus},         {"usable_cpus", info.n_usable_cpus},
          {"ram_bytes", info.ram_bytes}, {"memory_bound", info.memory_bound}};
}

ordered_json memory(const RunReport& report) {
  const scheduler::Plan& plan = report.session.plan();
  return {{"floor_bytes", plan.floor_bytes},
          {"planned_bytes", plan.total_bytes},
          {"fixed_bytes", plan.fixed_bytes},
          {"slots_bytes", plan.slots_bytes()},
          {"pinned_bytes", plan.pinned_bytes},
          {"pinned_tiles", plan.n_pinned},
          {"tiles", plan.pinned.size()},
          {"expert_slots", plan.n_slots[1]},
          {"peak_rss_bytes", engine::peak_rss_bytes()}};
}

ordered_json path_taken(const RunReport& report) {
  const io::FileSet& files = report.session.files();
  return {{"io", report.session.loader().path()},
          {"direct", files.direct()},
          {"alignment_bytes", files.alignment_bytes()},
          {"filesystem", files.filesystem()},
          {"hole_bytes", report.session.checkpoint().census.hole_bytes},
          {"not_a_disk", not_a_disk(report.session)},
          {"notes", report.session.notes()}};
}

ordered_json byte_counts(const LoaderCounts& counts) {
  ordered_json result;
  for (std::size_t k = 0; k < scheduler::kKinds; ++k) {
    const LoaderCounts::PerKind& kind = counts.by_kind[k];
    result[kKindNames[k]] = {{"misses", kind.n_reads},
                             {"hits", kind.n_hits},
                             {"asked", kind.asked_bytes},
                             {"used", kind.used_bytes},
                             {"alignment", kind.alignment_bytes},
                             {"unused", kind.unused_bytes()},
                             {"stall_seconds", 1e-9 * static_cast<double>(kind.stall_ns)}};
  }
  const Totals sum = total(counts);
  result["total"] = {{"asked", sum.asked},
                     {"used", sum.used},
                     {"alignment", sum.alignment},
                     {"unused", sum.unused},
                     {"delivered", counts.reader.n_read_bytes}};
  return result;
}

ordered_json token_list(const engine::Generated& generated) {
  ordered_json list = ordered_json::array();
  for (const engine::TokenTiming& token : generated.tokens) {
    list.push_back({{"id", token.token_id},
                    {"seconds", token.seconds},
                    {"stall_seconds", token.stall_seconds},
                    {"asked_bytes", token.asked_bytes}});
  }
  return list;
}

}  // namespace

std::string run_json(const RunReport& report) {
  const LoaderCounts counts = report.session.loader().counts();
  const engine::Generated& generated = report.generated;
  std::vector<std::uint32_t> ids;
  for (const engine::TokenTiming& token : generated.tokens) ids.push_back(token.token_id);
  const ordered_json root = {
      {"sluice_version", SLUICE_VERSION},
      {"configuration", configuration(report)},
      {"host", host()},
      {"path", path_taken(report)},
      {"memory", memory(report)},
      {"prompt_ids", report.prompt},
      {"generated_ids", ids},
      {"stop", stop_text(report)},
      {"error",
       report.status ? ordered_json(nullptr) : ordered_json(report.status.error().message)},
      {"tokens", token_list(generated)},
      {"bytes", byte_counts(counts)},
      {"requests",
       {{"submitted", counts.reader.n_requests},
        {"continued", counts.reader.n_continued},
        {"retried", counts.reader.n_retried}}},
      {"seconds",
       {{"open", report.open_seconds},
        {"prefill", generated.prefill_seconds},
        {"run", generated.seconds},
        {"to_first_token", generated.tokens.empty() ? 0 : generated.tokens[0].seconds},
        {"per_token", decode_seconds_per_token(generated)},
        {"stall", total(counts).stall_seconds},
        {"device_busy", 1e-9 * static_cast<double>(counts.busy_ns)}}},
      {"device_bytes_per_second", device_rate(counts)}};
  // A path may hold odd bytes; JSON must be UTF-8.
  return root.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string summary(const RunReport& report) {
  const LoaderCounts counts = report.session.loader().counts();
  const engine::Generated& generated = report.generated;
  const scheduler::Plan& plan = report.session.plan();
  const Totals sum = total(counts);
  std::string text;
  const auto line = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<16}{}\n", name, value);
  };
  line("tokens", fmt::format("{} prompt, {} generated, stop: {}", report.prompt.size(),
                             generated.tokens.size(), stop_text(report)));
  if (!generated.tokens.empty()) {
    line("time", fmt::format("{:.3f} s to first token, {:.4f} s/token after it, {:.3f} s in all",
                             generated.tokens[0].seconds, decode_seconds_per_token(generated),
                             generated.seconds));
  }
  line("read", fmt::format("{} a token; in all {} = {} used + {} alignment + {} unused",
                           size_text(bytes_per_token(generated)), size_text(sum.asked),
                           size_text(sum.used), size_text(sum.alignment), size_text(sum.unused)));
  for (std::size_t k = 0; k < scheduler::kKinds; ++k) {
    const LoaderCounts::PerKind& kind = counts.by_kind[k];
    line(fmt::format("  {}", kKindNames[k]).c_str(),
         fmt::format("{} in {} blocks, {} hits; stalled {:.3f} s", size_text(kind.asked_bytes),
                     kind.n_reads, kind.n_hits, 1e-9 * static_cast<double>(kind.stall_ns)));
  }
  const std::string caveat = not_a_disk(report.session);
  line("device",
       fmt::format("{:.2f} GB/s while busy, busy {:.0f} % of the time{}", device_rate(counts) / 1e9,
                   100e-9 * static_cast<double>(counts.busy_ns) / std::max(generated.seconds, 1e-9),
                   caveat.empty() ? "" : " (" + caveat + ")"));
  line("model", format_name(report.session.checkpoint()));
  line("path", fmt::format("{}, on {}", report.session.loader().path(),
                           report.session.files().filesystem()));
  line("stalled",
       fmt::format("{:.3f} s of {:.3f} s for reads ({:.0f} %)", sum.stall_seconds,
                   generated.seconds, 100 * sum.stall_seconds / std::max(generated.seconds, 1e-9)));
  line("memory", fmt::format("{} peak RSS, {} planned ({} floor); {} of {} tiles pinned",
                             size_text(engine::peak_rss_bytes()), size_text(plan.total_bytes),
                             size_text(plan.floor_bytes), plan.n_pinned, plan.pinned.size()));
  return text;
}

}  // namespace sluice
