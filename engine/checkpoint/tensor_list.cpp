#include "engine/checkpoint/tensor_list.h"

#include <fmt/format.h>

#include <utility>

namespace engine {
namespace {

class List {
 public:
  void norm(std::string suffix, std::uint64_t n, Dtype dtype = Dtype::bf16) {
    small(std::move(suffix), {n}, dtype);
  }
  void small(std::string suffix, std::vector<std::uint64_t> shape, Dtype dtype = Dtype::bf16) {
    specs_.push_back({std::move(suffix), Role::small, Weight::lm_head, dtype, std::move(shape)});
  }
  void matrix(std::string suffix, Weight weight, std::uint64_t n_rows, std::uint64_t n_cols) {
    specs_.push_back({std::move(suffix), Role::matrix, weight, Dtype::bf16, {n_rows, n_cols}});
  }
  TensorSpec& last() { return specs_.back(); }
  std::vector<TensorSpec> take() { return std::move(specs_); }

 private:
  std::vector<TensorSpec> specs_;
};

void add_kda(List& list, const Config& c) {
  const std::uint64_t d = c.hidden_size;
  const std::uint64_t width = c.kda_width();
  list.matrix("self_attn.q_proj.weight", Weight::kda_q, width, d);
  list.matrix("self_attn.k_proj.weight", Weight::kda_k, width, d);
  list.matrix("self_attn.v_proj.weight", Weight::kda_v, width, d);
  list.matrix("self_attn.f_a_proj.weight", Weight::kda_f_a, c.kda_head_dim, d);
  list.matrix("self_attn.f_b_proj.weight", Weight::kda_f_b, width, c.kda_head_dim);
  list.matrix("self_attn.b_proj.weight", Weight::kda_b, c.kda_n_heads, d);
  list.matrix("self_attn.g_proj.weight", Weight::kda_g, width, d);
  list.matrix("self_attn.o_proj.weight", Weight::kda_o, d, width);
  list.small("self_attn.q_conv1d.weight", {width, 1, c.conv_kernel_size}, Dtype::f32);
  list.small("self_attn.k_conv1d.weight", {width, 1, c.conv_kernel_size}, Dtype::f32);
  list.small("self_attn.v_conv1d.weight", {width, 1, c.conv_kernel_size}, Dtype::f32);
  list.small("self_attn.A_log", {c.kda_n_heads}, Dtype::f32);
  list.last().may_be_longer = true;
  list.small("self_attn.dt_bias", {width}, Dtype::f32);
  list.norm("self_attn.o_norm.weight", c.kda_head_dim, Dtype::f32);
}

void add_mla(List& list, const Config& c) {
  const std::uint64_t d = c.hidden_size;
  const std::uint64_t heads = c.n_heads;
  list.matrix("self_attn.q_a_proj.weight", Weight::mla_q_a, c.q_lora_rank, d);
  list.matrix("self_attn.kv_a_proj_with_mqa.weight", Weight::mla_kv_a, c.latent_cache_width(), d);
  list.matrix("self_attn.q_b_proj.weight", Weight::mla_q_b, heads * c.qk_head_dim(), c.q_lora_rank);
  list.matrix("self_attn.kv_b_proj.weight", Weight::mla_kv_b,
              heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank);
  list.matrix("self_attn.g_proj.weight", Weight::mla_g, heads * c.v_head_dim, d);
  list.matrix("self_attn.o_proj.weight", Weight::mla_o, d, heads * c.v_head_dim);
  list.norm("self_attn.q_a_layernorm.weight", c.q_lora_rank);
  list.norm("self_attn.kv_a_layernorm.weight", c.kv_lora_rank);
}

void add_dense_mlp(List& list, const Config& c) {
  const std::uint64_t d = c.hidden_size;
  list.matrix("mlp.gate_proj.weight", Weight::mlp_gate, c.intermediate_size, d);
  list.matrix("mlp.up_proj.weight", Weight::mlp_up, c.intermediate_size, d);
  list.matrix("mlp.down_proj.weight", Weight::mlp_down, d, c.intermediate_size);
}

void add_moe(List& list, const Config& c) {
  const std::uint64_t d = c.hidden_size;
  const std::uint64_t shared = c.shared_intermediate_size();
  const std::string moe = "block_sparse_moe.";
  list.matrix(moe + "gate.weight", Weight::moe_router, c.n_experts, d);
  list.matrix(moe + "routed_expert_down_proj.weight", Weight::moe_latent_down, c.latent_size, d);
  list.matrix(moe + "shared_experts.gate_proj.weight", Weight::shared_gate, shared, d);
  list.matrix(moe + "shared_experts.up_proj.weight", Weight::shared_up, shared, d);
  list.matrix(moe + "shared_experts.down_proj.weight", Weight::shared_down, d, shared);
  list.matrix(moe + "routed_expert_up_proj.weight", Weight::moe_latent_up, d, c.latent_size);
  list.small(moe + "gate.e_score_correction_bias", {c.n_experts}, Dtype::f32);
  list.norm(moe + "routed_expert_norm.weight", c.latent_size);
}

}  // namespace

std::string layer_prefix(std::uint32_t layer_idx) {
  return fmt::format("model.layers.{}.", layer_idx);
}

// The matrices of a list stand in the order of Weight, which is the order of consumption.
std::vector<TensorSpec> layer_tensors(const Config& config, std::uint32_t layer_idx) {
  List list;
  if (config.is_mla(layer_idx)) {
    add_mla(list, config);
  } else {
    add_kda(list, config);
  }
  if (config.is_moe(layer_idx)) {
    add_moe(list, config);
  } else {
    add_dense_mlp(list, config);
  }
  for (const char* norm : {"input_layernorm.weight", "post_attention_layernorm.weight",
                           "self_attention_res_norm.weight", "mlp_res_norm.weight"}) {
    list.norm(norm, config.hidden_size);
  }
  list.small("self_attention_res_proj.weight", {1, config.hidden_size});
  list.small("mlp_res_proj.weight", {1, config.hidden_size});
  return list.take();
}

std::vector<TensorSpec> head_tensors(const Config& config) {
  List list;
  list.matrix("lm_head.weight", Weight::lm_head, config.vocab_size, config.hidden_size);
  list.matrix("model.embed_tokens.weight", Weight::lm_head, config.vocab_size, config.hidden_size);
  list.last().role = Role::embedding;
  list.norm("model.norm.weight", config.hidden_size);
  list.norm("model.output_attn_res_norm.weight", config.hidden_size);
  list.small("model.output_attn_res_proj.weight", {1, config.hidden_size});
  return list.take();
}

std::array<ExpertTensorSpec, 6> expert_tensors(const Config& config) {
  const std::uint64_t wide = config.moe_intermediate_size;
  const std::uint64_t latent = config.latent_size;
  return {{{"w1.weight_packed", wide, latent / 2},
           {"w1.weight_scale", wide, latent / 32},
           {"w2.weight_packed", latent, wide / 2},
           {"w2.weight_scale", latent, wide / 32},
           {"w3.weight_packed", wide, latent / 2},
           {"w3.weight_scale", wide, latent / 32}}};
}

}  // namespace engine
