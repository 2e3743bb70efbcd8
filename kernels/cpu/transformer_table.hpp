#pragma once

/// The table of transformer kernels of one kit, each entry inside its float mode.

#include "kernels/cpu/optimizer.hpp"
#include "kernels/cpu/transformer.hpp"
#include "kernels/cpu/transformer_attention.hpp"
#include "kernels/cpu/transformer_norm.hpp"
#include "kernels/cpu/transformer_pointwise.hpp"
#include "kernels/cpu/transformer_vocabulary.hpp"

namespace penstock {

/// Runs kKernel under FloatModeGuard. V only makes the instance local to the file of its kit.
template <class V, auto kKernel>
struct Guarded;
template <class V, class... Arguments, void (*kKernel)(Arguments...)>
struct Guarded<V, kKernel> {
  static void call(Arguments... arguments) {
    const FloatModeGuard guard;
    body(arguments...);
  }
  // A call of its own, since the compiler knows nothing of MXCSR and may move arithmetic on the
  // arguments out of the guard's scope.
  [[gnu::noinline]] static void body(Arguments... arguments) { kKernel(arguments...); }
};

template <class V>
constexpr TransformerKernels transformer_table() {
  using Norm = NormKernels<V>;
  using Attention = AttentionKernels<V>;
  using Pointwise = PointwiseKernels<V>;
  using Vocabulary = VocabularyKernels<V>;
  return {
      .rmsnorm_forward = Guarded<V, &Norm::rmsnorm_forward>::call,
      .rmsnorm_backward = Guarded<V, &Norm::rmsnorm_backward>::call,
      .layernorm_forward = Guarded<V, &Norm::layernorm_forward>::call,
      .layernorm_backward = Guarded<V, &Norm::layernorm_backward>::call,
      .causal_softmax = Guarded<V, &Attention::causal_softmax>::call,
      .softmax_backward = Guarded<V, &Attention::softmax_backward>::call,
      .gelu_forward = Guarded<V, &Pointwise::gelu_forward>::call,
      .gelu_backward = Guarded<V, &Pointwise::gelu_backward>::call,
      .swiglu_forward = Guarded<V, &Pointwise::swiglu_forward>::call,
      .swiglu_backward = Guarded<V, &Pointwise::swiglu_backward>::call,
      .rope = Guarded<V, &Attention::rope>::call,
      .add_into = Guarded<V, &Pointwise::add_into>::call,
      .add = Guarded<V, &Pointwise::add>::call,
      .scale = Guarded<V, &Pointwise::scale>::call,
      .bias_add = Guarded<V, &Pointwise::bias_add>::call,
      .bias_backward = Guarded<V, &Pointwise::bias_backward>::call,
      .loss_fold = Guarded<V, &Vocabulary::loss_fold>::call,
      .loss_value = Guarded<V, &Vocabulary::loss_value>::call,
      .loss_backward = Guarded<V, &Vocabulary::loss_backward>::call,
      .embedding_gather = Guarded<V, &Vocabulary::embedding_gather>::call,
      .embedding_backward = Guarded<V, &Vocabulary::embedding_backward>::call,
      .exp = Guarded<V, &Pointwise::exp>::call,
      .tanh = Guarded<V, &Pointwise::tanh>::call,
      .log = Guarded<V, &Pointwise::log>::call,
  };
}

extern const TransformerKernels kTransformerScalar;
extern const TransformerKernels kTransformerAvx2;
extern const TransformerKernels kTransformerAvx512;

}  // namespace penstock
