#include "engine/synth/synth.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/synth/made_up_container.h"
#include "tools/sluice/command.h"
#include "tools/sluice/interrupt.h"
#include "tools/sluice/progress.h"
#include "tools/sluice/size_flag.h"

namespace sluice {
namespace {

using Size = std::optional<std::uint32_t>;

// Flags over a preset; what is not given stays as the preset has it.
struct Options {
  std::string out;
  std::optional<std::uint64_t> alias_bytes;
  bool container = false;
  std::uint32_t n_jobs = engine::WriteOptions().n_jobs;
  std::string preset = "deep25";
  std::string gain;
  std::optional<std::uint64_t> seed;
  std::vector<std::uint32_t> full_attn_layers;
  Size n_layers, hidden, intermediate, vocab, attn_res_block;
  Size kda_heads, kda_head_dim, heads, q_lora, kv_lora, nope, rope, v_head_dim;
  Size n_experts, top_k, n_shared, expert_width, latent, dense_layers, max_positions;
};

struct SizeFlag {
  const char* flag;
  Size Options::*option;
  std::uint32_t engine::Config::*field;
  const char* help;
};

constexpr SizeFlag kSizeFlags[] = {
    {"--layers", &Options::n_layers, &engine::Config::n_layers,
     "decoder layers; MLA in every fourth and the last unless --full-attn-layers says else"},
    {"--hidden", &Options::hidden, &engine::Config::hidden_size, "hidden width"},
    {"--intermediate", &Options::intermediate, &engine::Config::intermediate_size,
     "width of the dense MLP"},
    {"--dense-layers", &Options::dense_layers, &engine::Config::first_k_dense_replace,
     "layers with a dense MLP before the first with experts"},
    {"--vocab", &Options::vocab, &engine::Config::vocab_size,
     "vocabulary; from 512 on a tokenizer is written and the last 256 ids are special"},
    {"--max-positions", &Options::max_positions, &engine::Config::max_positions,
     "context limit in tokens"},
    {"--attn-res-block", &Options::attn_res_block, &engine::Config::attn_res_block_size,
     "layers of an AttnRes block"},
    {"--kda-heads", &Options::kda_heads, &engine::Config::kda_n_heads, "KDA heads"},
    {"--kda-head-dim", &Options::kda_head_dim, &engine::Config::kda_head_dim,
     "width of a KDA head"},
    {"--heads", &Options::heads, &engine::Config::n_heads, "MLA heads"},
    {"--q-lora", &Options::q_lora, &engine::Config::q_lora_rank, "MLA query bottleneck"},
    {"--kv-lora", &Options::kv_lora, &engine::Config::kv_lora_rank, "MLA latent width"},
    {"--nope-dim", &Options::nope, &engine::Config::qk_nope_head_dim,
     "query and key width of an MLA head"},
    {"--rope-dim", &Options::rope, &engine::Config::qk_rope_head_dim,
     "width of the key that MLA heads share"},
    {"--v-head-dim", &Options::v_head_dim, &engine::Config::v_head_dim,
     "value width of an MLA head"},
    {"--experts", &Options::n_experts, &engine::Config::n_experts, "routed experts of a layer"},
    {"--top-k", &Options::top_k, &engine::Config::top_k, "routed experts of a token"},
    {"--shared-experts", &Options::n_shared, &engine::Config::n_shared_experts, "shared experts"},
    {"--expert-width", &Options::expert_width, &engine::Config::moe_intermediate_size,
     "width inside an expert, a multiple of 32"},
    {"--latent", &Options::latent, &engine::Config::latent_size,
     "width that routed experts see, a multiple of 32"},
};

io::Result<engine::Geometry> make_geometry(const Options& options) {
  io::Result<engine::Geometry> geometry = engine::find_geometry(options.preset);
  if (!geometry) return geometry;
  engine::Config& config = geometry->config;
  for (const SizeFlag& size : kSizeFlags) {
    if (options.*size.option) config.*size.field = *(options.*size.option);
  }
  if (options.kda_heads) geometry->a_log_size = 2 * config.kda_n_heads;
  if (options.n_layers) config.mla_layers = engine::spread_mla_layers(config.n_layers);
  if (!options.full_attn_layers.empty()) {
    config.mla_layers.assign(config.n_layers, false);
    for (const std::uint32_t layer : options.full_attn_layers) {
      if (layer < 1 || layer > config.n_layers) {
        return io::Error{
            io::Errc::invalid, 0,
            fmt::format("--full-attn-layers has {}, want 1 to {}", layer, config.n_layers)};
      }
      config.mla_layers[layer - 1] = true;
    }
  }
  engine::set_token_ids(config);
  if (!options.gain.empty()) {
    geometry->gain = options.gain == "page" ? engine::Gain::page : engine::Gain::fan_in;
  }
  if (options.seed) geometry->seed = *options.seed;
  return geometry;
}

io::Status synth_container(const Options& options, const engine::Geometry& geometry) {
  Progress progress("synth");
  const io::Result<engine::Written> written = engine::write_made_up_container(
      geometry, options.out,
      {.alias_bytes = options.alias_bytes,
       .write = {
           .n_jobs = options.n_jobs,
           .progress = [&](std::uint64_t n_done, std::uint64_t n_resumed,
                           std::uint64_t n_bytes) { progress.show(n_done, n_resumed, n_bytes); },
           .interrupted = &catch_interrupts()}});
  if (!written) return written.error();
  if (written->was_complete) {
    std::fprintf(stderr, "sluice: %s is a finished container of this layout already\n",
                 options.out.c_str());
    return {};
  }
  std::fprintf(stderr, "sluice: wrote %s, %s of data for a model of %s\n", options.out.c_str(),
               size_text(written->n_bytes).c_str(),
               size_text(engine::synth_bytes(geometry)).c_str());
  return {};
}

io::Status synth(const Options& options) {
  io::Result<engine::Geometry> geometry = make_geometry(options);
  if (!geometry) return std::move(geometry.error());
  if (options.container || options.alias_bytes) return synth_container(options, *geometry);
  engine::SynthOptions synth_options;
  synth_options.interrupted = &catch_interrupts();
  Progress progress("synth");
  synth_options.progress = progress.callback();
  if (io::Status status = engine::write_made_up(*geometry, options.out, synth_options); !status) {
    return status;
  }
  std::fprintf(stderr, "sluice: wrote %s, %llu bytes in %u shards\n", options.out.c_str(),
               static_cast<unsigned long long>(engine::synth_bytes(*geometry)),
               geometry->config.n_layers + 1);
  return {};
}

}  // namespace

void add_synth(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "synth",
      "Writes a made-up checkpoint of any size, in the released layout or as a container.");
  command->add_option("OUT", options->out, "folder to write; must not exist")->required();
  command->add_option("--geometry", options->preset, "sizes to start from")
      ->capture_default_str()
      ->check(CLI::IsMember({"tiny", "deep25", "nano", "mini", "kimi-k3"}));
  command->add_flag("--container", options->container,
                    "write a container, as pack --experts would make of the checkpoint");
  command
      ->add_option("--alias", options->alias_bytes,
                   "write a container whose blocks share bytes, so that all of it takes this much "
                   "disk space; every read keeps its size and is one of real data")
      ->transform(kSize);
  CLI::Option* jobs =
      command->add_option("--jobs", options->n_jobs, "of a container: blocks that are made at once")
          ->capture_default_str()
          ->check(CLI::Range(1U, 256U));
  command->parse_complete_callback([options, jobs] {
    if (jobs->count() > 0 && !options->container && !options->alias_bytes) {
      throw CLI::ValidationError("--jobs", "is for a container: needs --container or --alias");
    }
  });
  command->add_option("--seed", options->seed, "seed of the weights [as the geometry has it]");
  command
      ->add_option("--gain", options->gain,
                   "page: the published tiny model's weights; fan-in: of a size that suits any "
                   "width [as the geometry has it]")
      ->check(CLI::IsMember({"page", "fan-in"}));
  for (const SizeFlag& size : kSizeFlags) {
    const bool may_be_zero = size.field == &engine::Config::first_k_dense_replace;
    command->add_option(size.flag, (*options).*size.option, size.help)
        ->check(CLI::Range(may_be_zero ? 0U : 1U, std::uint32_t{1} << 24));
  }
  command
      ->add_option("--full-attn-layers", options->full_attn_layers,
                   "MLA layers counted from 1, such as 4,8,12")
      ->delimiter(',');
  command->callback([options, &exit_code] {
    io::Status status = synth(*options);
    exit_code = status ? 0 : report_error(status.error());
  });
}

}  // namespace sluice
