#include "tools/sluice/inspect_report.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {
namespace {

using engine::Catalogue;
using engine::Census;
using engine::Checkpoint;
using engine::Config;
using Json = nlohmann::ordered_json;

// The layers of one kind, whose trunks are alike.
struct LayerKind {
  std::uint32_t n_layers = 0;
  std::uint64_t n_matrix_bytes = 0;  // of all of them
  std::uint64_t n_small_bytes = 0;
  std::uint32_t n_tiles = 0;
};

std::string kind_name(const Config& config, std::uint32_t layer_idx) {
  return fmt::format("{} + {}", config.is_mla(layer_idx) ? "MLA" : "KDA",
                     config.is_moe(layer_idx) ? "MoE" : "dense");
}

// The N of "...layers.N....", or n_layers if the tensor belongs to no layer.
std::uint32_t layer_of(std::string_view name, std::uint32_t n_layers) {
  constexpr std::string_view kLayers = "model.layers.";
  const std::size_t at = name.find(kLayers);
  if (at == std::string_view::npos) return n_layers;
  std::uint32_t layer_idx = n_layers;
  std::from_chars(name.data() + at + kLayers.size(), name.data() + name.size(), layer_idx);
  return layer_idx;
}

std::map<std::string, LayerKind> count_layer_kinds(const Checkpoint& checkpoint) {
  const Config& config = checkpoint.config;
  std::map<std::string, LayerKind> kinds;
  for (std::uint32_t layer_idx = 0; layer_idx < config.n_layers; ++layer_idx) {
    ++kinds[kind_name(config, layer_idx)].n_layers;
  }
  for (const engine::Matrix& matrix : checkpoint.catalogue.matrices) {
    if (matrix.layer_idx >= config.n_layers) continue;
    LayerKind& kind = kinds[kind_name(config, matrix.layer_idx)];
    kind.n_matrix_bytes += matrix.n_bytes();
    kind.n_tiles += matrix.n_tiles;
  }
  for (const auto& [name, tensor] : checkpoint.catalogue.small) {
    const std::uint32_t layer_idx = layer_of(name, config.n_layers);
    if (layer_idx >= config.n_layers) continue;
    kinds[kind_name(config, layer_idx)].n_small_bytes += tensor.range.n_bytes;
  }
  return kinds;
}

std::uint32_t count_layers(const Config& config, bool (Config::*is)(std::uint32_t) const) {
  std::uint32_t n = 0;
  for (std::uint32_t layer_idx = 0; layer_idx < config.n_layers; ++layer_idx) {
    n += (config.*is)(layer_idx) ? 1 : 0;
  }
  return n;
}

std::vector<std::pair<std::string, std::uint64_t>> list_sizes(const Config& c) {
  return {{"layers", c.n_layers},
          {"MLA layers", count_layers(c, &Config::is_mla)},
          {"MoE layers", count_layers(c, &Config::is_moe)},
          {"hidden size", c.hidden_size},
          {"dense intermediate size", c.intermediate_size},
          {"vocabulary", c.vocab_size},
          {"AttnRes block", c.attn_res_block_size},
          {"KDA heads", c.kda_n_heads},
          {"KDA head dim", c.kda_head_dim},
          {"MLA heads", c.n_heads},
          {"q_lora_rank", c.q_lora_rank},
          {"kv_lora_rank", c.kv_lora_rank},
          {"qk_nope_head_dim", c.qk_nope_head_dim},
          {"qk_rope_head_dim", c.qk_rope_head_dim},
          {"v_head_dim", c.v_head_dim},
          {"routed experts", c.n_experts},
          {"top_k", c.top_k},
          {"shared experts", c.n_shared_experts},
          {"expert intermediate size", c.moe_intermediate_size},
          {"expert latent size", c.latent_size}};
}

std::vector<std::pair<std::string, Census::Count>> list_kinds(const Census& c) {
  return {{"routed experts", c.experts},
          {"trunk matrices", c.trunk},
          {"lm_head", c.lm_head},
          {"embedding", c.embedding},
          {"small tensors", c.small},
          {"ignored", c.ignored},
          {"total", c.total}};
}

std::vector<std::pair<std::string, Census::Count>> list_dtypes(const Census& c) {
  return {{"U8", c.u8}, {"BF16", c.bf16}, {"F32", c.f32}, {"other", c.other}};
}

std::uint64_t expert_bytes(const Catalogue& catalogue) {
  const bool has_experts = catalogue.blocks.size() > catalogue.n_tiles();
  return has_experts ? catalogue.blocks[catalogue.n_tiles()].n_bytes : 0;
}

// Stored bytes are those on disk, in shards included; distinct ones are fewer in an aliased model.
std::vector<std::pair<std::string, std::uint64_t>> list_container(
    const engine::ContainerFacts& facts) {
  return {{"data files", facts.n_data_files},
          {"data file bytes", facts.data_bytes},
          {"bytes of all blocks", facts.block_bytes},
          {"stored bytes", facts.stored_bytes},
          {"distinct stored bytes", facts.distinct_bytes},
          {"alignment", facts.alignment_bytes},
          {"tile size", facts.tile_bytes}};
}

std::vector<std::pair<std::string, std::uint64_t>> list_blocks(const Checkpoint& checkpoint) {
  const Catalogue& catalogue = checkpoint.catalogue;
  const std::uint64_t n_experts = catalogue.blocks.size() - catalogue.n_tiles();
  const std::uint64_t n_routed = count_layers(checkpoint.config, &Config::is_moe);
  const std::uint64_t n_expert_bytes = expert_bytes(catalogue);
  return {
      {"trunk tiles", catalogue.n_tiles()},
      {"of these lm_head", catalogue.n_tiles() - catalogue.n_body_tiles()},
      {"expert blocks", n_experts},
      {"embedding rows", catalogue.vocab_size},
      {"bytes of an expert", n_expert_bytes},
      {"bytes of an embedding row", catalogue.embedding_row_bytes},
      {"expert bytes a token", n_routed * checkpoint.config.top_k * n_expert_bytes},
      {"trunk bytes a token", checkpoint.census.trunk.n_bytes + checkpoint.census.lm_head.n_bytes}};
}

Json count_json(const Census::Count& count) {
  return {
      {"tensors", count.n_tensors}, {"bytes", count.n_bytes}, {"parameters", count.n_parameters}};
}

void add_counts(std::string& text, std::string_view title,
                const std::vector<std::pair<std::string, Census::Count>>& counts) {
  text += fmt::format("\n{:<24}{:>10}{:>20}{:>20}\n", title, "tensors", "bytes", "parameters");
  for (const auto& [name, count] : counts) {
    if (count.n_tensors == 0) continue;
    text += fmt::format("  {:<22}{:>10}{:>20}{:>20}\n", name, count.n_tensors, count.n_bytes,
                        count.n_parameters);
  }
}

void add_numbers(std::string& text, std::string_view title,
                 const std::vector<std::pair<std::string, std::uint64_t>>& numbers) {
  text += fmt::format("\n{}\n", title);
  for (const auto& [name, number] : numbers) text += fmt::format("  {:<32}{:>20}\n", name, number);
}

}  // namespace

std::string inspect_text(const Checkpoint& checkpoint) {
  const Census& census = checkpoint.census;
  std::string text = fmt::format("{}\n{}\n", checkpoint.folder.string(), format_name(checkpoint));
  if (census.n_shards > 0) {
    text += fmt::format("{} shards, {} bytes\n", census.n_shards, census.shard_bytes);
  }
  if (checkpoint.container) add_numbers(text, "container", list_container(*checkpoint.container));
  add_counts(text, "by kind", list_kinds(census));
  add_counts(text, "by dtype", list_dtypes(census));
  text += fmt::format("\n{:<24}{:>10}{:>20}{:>20}{:>10}\n", "trunk by layer kind", "layers",
                      "bytes a layer", "of these small", "tiles");
  for (const auto& [name, kind] : count_layer_kinds(checkpoint)) {
    const std::uint64_t n_small = kind.n_small_bytes / kind.n_layers;
    text += fmt::format("  {:<22}{:>10}{:>20}{:>20}{:>10}\n", name, kind.n_layers,
                        kind.n_matrix_bytes / kind.n_layers + n_small, n_small,
                        kind.n_tiles / kind.n_layers);
  }
  add_numbers(text, "blocks", list_blocks(checkpoint));
  add_numbers(text, "sizes", list_sizes(checkpoint.config));
  if (!checkpoint.notes.empty()) text += "\nnotes\n";
  for (const std::string& note : checkpoint.notes) text += "  " + note + "\n";
  return text;
}

std::string inspect_json(const Checkpoint& checkpoint) {
  Json root = {{"folder", checkpoint.folder.string()},
               {"format", format_name(checkpoint)},
               {"shards", checkpoint.census.n_shards},
               {"shard_bytes", checkpoint.census.shard_bytes}};
  if (checkpoint.container) {
    for (const auto& [name, number] : list_container(*checkpoint.container)) {
      root["container"][name] = number;
    }
    root["container"]["aliased"] = checkpoint.container->is_aliased;
    root["container"]["experts included"] = checkpoint.container->has_experts;
  }
  for (const auto& [name, count] : list_kinds(checkpoint.census)) {
    root["kinds"][name] = count_json(count);
  }
  for (const auto& [name, count] : list_dtypes(checkpoint.census)) {
    root["dtypes"][name] = count_json(count);
  }
  for (const auto& [name, kind] : count_layer_kinds(checkpoint)) {
    root["layer_kinds"][name] = {
        {"layers", kind.n_layers},
        {"trunk_bytes", (kind.n_matrix_bytes + kind.n_small_bytes) / kind.n_layers},
        {"small_bytes", kind.n_small_bytes / kind.n_layers},
        {"tiles", kind.n_tiles / kind.n_layers}};
  }
  for (const auto& [name, number] : list_blocks(checkpoint)) root["blocks"][name] = number;
  for (const auto& [name, number] : list_sizes(checkpoint.config)) root["sizes"][name] = number;
  root["notes"] = checkpoint.notes;
  // File names need not be UTF-8; JSON must be.
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace sluice
