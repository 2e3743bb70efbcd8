#pragma once

/// What the layers of both families have alike: x + attention(norm(x)), then x + feed forward of
/// the norm of that, backward in the opposite order, over one scratch.

#include "train/layer.hpp"
#include "train/linear.hpp"

namespace penstock {

class LayerBase : public Layer {
 public:
  void carve(Carver& carver) final;
  Status backward(const Ops& ops, const GroupWeights& weights, const float* x,
                  const Activations& kept, float* d, const GroupGradients& gradients) final;

 protected:
  LayerBase(const LayerShape& shape, MatmulType operand, Attention attention);

  /// The two halves of backward: d is the gradient of what the half returns, then of its input.
  virtual Status feed_forward_backward(const Ops& ops, const GroupWeights& weights,
                                       const Activations& kept, float* d,
                                       const GroupGradients& gradients) = 0;
  virtual Status attention_backward(const Ops& ops, const GroupWeights& weights, const float* x,
                                    const Activations& kept, float* d,
                                    const GroupGradients& gradients) = 0;

  /// The norm of x [rows, hidden], as operand in scratch.narrow_operand[0], with its statistics.
  [[nodiscard]] const void* normed(const Ops& ops, const float* x,
                                   const NormWeights& weights) const;
  /// The backward of the norm that normed() made last: scratch.narrow[0] is the gradient of what it
  /// returned; that of x is added to d.
  void norm_backward(const Ops& ops, const float* x, const NormWeights& weights, float* d,
                     const NormGradients& gradients) const;
  /// Through the projection behind the attention and the attention itself, from d to scratch.qkv.
  Status heads_backward(const Ops& ops, const Linear& projection, const void* weight,
                        const Activations& kept, const float* d, float* weight_gradient);

  const LayerShape shape_;
  const MatmulType operand_;
  Attention attention_;
  const Norm norm_;
  const std::int64_t rows_, hidden_, row_qkv_;
  LayerScratch scratch_;
};

}  // namespace penstock
