#pragma once

/// The plain fp32 AdamW loop that every run through the engine must equal, bit for bit.

#include <xmmintrin.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "base/checksum.hpp"
#include "engine/model.hpp"
#include "kernels/cpu/optimizer.hpp"

namespace penstock::testing {

/// Flush-to-zero for the reference loop, as the kernels are specified.
class FlushDenormals {
 public:
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040U); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  unsigned saved_;
};

inline std::uint16_t round_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fc0;
  bits += 0x7fffU + ((bits >> 16) & 1U);
  return static_cast<std::uint16_t>(bits >> 16);
}

/// What training in memory gives: plain arrays, one loop.
class Reference {
 public:
  std::uint64_t updates = 0;
  std::vector<double> norms;              ///< per step; 0 where it was not applied
  std::vector<std::vector<float>> after;  ///< per step: all weights, tensor after tensor
  std::vector<std::uint64_t> updates_after;

  /// The hash that the store must have after `step` (0: as created), as `penstock inspect --hash`
  /// defines it: tensors in name order, of each hi, lo, m, v; then the trainer's blob.
  [[nodiscard]] Hash128 hash(std::uint64_t step, std::span<const std::byte> blob) const {
    StreamHash128 hash = state_hashes_.at(step);
    hash.update(blob.data(), blob.size());
    return hash.digest();
  }

  Reference(const ModelSpec& model, const Script& script, std::uint64_t seed) : model_(model) {
    const FlushDenormals guard;
    start(seed);
    for (std::uint64_t step = 1; step <= script.steps.size(); ++step) {
      run_step(step, script.steps[step - 1], script.max_norm);
    }
  }

 private:
  struct Tensor {
    std::vector<float> p, m, v;
    std::vector<std::uint16_t> gradient;
    bool has_gradient = false;
  };

  void start(std::uint64_t seed) {
    for (const TensorSpec& spec : model_.tensors) {
      Tensor tensor;
      std::uint64_t n = 1;
      for (const std::int64_t d : spec.shape) n *= static_cast<std::uint64_t>(d);
      tensor.p.resize(n);
      for (std::uint64_t i = 0; i < n; ++i) {
        const float normal = approximately_normal(seed, hash_name(spec.name), i);
        tensor.p[i] = spec.init.kind == Init::Kind::kConstant ? spec.init.constant
                      : spec.init.kind == Init::Kind::kNormal ? spec.init.deviation * normal
                                                              : 0.0F;
      }
      tensor.m.assign(n, 0.0F);
      tensor.v.assign(n, 0.0F);
      tensor.gradient.assign(n, 0);
      tensors_.push_back(std::move(tensor));
    }
    for (TensorId t = 0; t < tensors_.size(); ++t) by_name_.push_back(t);
    std::sort(by_name_.begin(), by_name_.end(), [&](TensorId a, TensorId b) {
      return model_.tensors[a].name < model_.tensors[b].name;
    });
    add_hash();
  }

  void add_hash() {
    StreamHash128 hash;
    std::vector<std::uint16_t> hi, lo;
    for (const TensorId t : by_name_) {
      const Tensor& tensor = tensors_[t];
      hi.clear(), lo.clear();
      for (const float master : tensor.p) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, &master, sizeof bits);
        hi.push_back(static_cast<std::uint16_t>((bits + 0x8000U) >> 16));
        lo.push_back(static_cast<std::uint16_t>(bits));
      }
      hash.update(hi.data(), hi.size() * sizeof hi[0]);
      hash.update(lo.data(), lo.size() * sizeof lo[0]);
      hash.update(tensor.m.data(), tensor.m.size() * sizeof(float));
      hash.update(tensor.v.data(), tensor.v.size() * sizeof(float));
    }
    state_hashes_.push_back(hash);
  }

  [[nodiscard]] static float weight(float master) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &master, sizeof bits);
    return widen(static_cast<std::uint16_t>((bits + 0x8000U) >> 16));
  }

  /// Rounded gradients; returns the sum of squares over tensors in name order.
  double make_gradients(std::uint64_t step, StepKind kind) {
    const OptimizerKernels& kernels = optimizer_kernels(Isa::kScalar);
    double sum = 0.0;
    for (const TensorId t : by_name_) {
      Tensor& tensor = tensors_[t];
      tensor.has_gradient = gets_gradient(kind, t);
      if (!tensor.has_gradient) continue;
      const std::uint64_t n = tensor.p.size();
      for (std::uint64_t i = 0; i < n; ++i) {
        const float w = weight(tensor.p[i]);
        float g = synthetic_gradient(step, t, 0, i, w);
        if (model_.tensors[t].contributions == 2) g += synthetic_gradient(step, t, 1, i, w);
        tensor.gradient[i] = round_bf16(g);
      }
      double tensor_sum = 0.0;
      for (std::uint64_t at = 0; at < n; at += kNormBlock) {
        const std::uint64_t count = std::min<std::uint64_t>(kNormBlock, n - at);
        tensor_sum += kernels.norm_bf16(count, tensor.gradient.data() + at).sum_of_squares;
      }
      sum += tensor_sum;
    }
    return sum;
  }

  /// Loshchilov & Hutter 2019, in the order of docs/numerics.md.
  void update(const StepInput& input, double norm) {
    const double t = static_cast<double>(updates);
    const AdamW& h = input.hyper;
    const double bc1 = -std::expm1(t * std::log(h.beta1));
    const double bc2 = -std::expm1(t * std::log(h.beta2));
    const double clip = std::min(1.0, input.max_norm / (norm + 1e-6));
    const auto gs = static_cast<float>(clip * input.gradient_scale);
    const auto w1 = static_cast<float>(1 - h.beta1), w2 = static_cast<float>(1 - h.beta2);
    const auto ns = static_cast<float>(-h.lr / bc1), is = static_cast<float>(1 / std::sqrt(bc2));
    const auto eps = static_cast<float>(h.eps);
    for (TensorId id = 0; id < tensors_.size(); ++id) {
      Tensor& tensor = tensors_[id];
      if (!tensor.has_gradient) continue;
      const auto nd = model_.tensors[id].decay ? static_cast<float>(-h.lr * h.weight_decay) : 0.0F;
      for (std::uint64_t i = 0; i < tensor.p.size(); ++i) {
        float &p = tensor.p[i], &m = tensor.m[i], &v = tensor.v[i];
        const float g = gs * widen(tensor.gradient[i]);
        m = std::fma(w1, g - m, m);
        v = std::fma(w2, std::fma(g, g, -v), v);
        const float u = m / std::fma(std::sqrt(v), is, eps);
        p = nd == 0.0F ? std::fma(ns, u, p) : p + std::fma(ns, u, nd * p);
      }
    }
  }

  void run_step(std::uint64_t step, StepKind kind, double max_norm) {
    const bool applied = kind != StepKind::kInfinite && kind != StepKind::kSkip;
    if (applied) {
      const StepInput input = step_input(step, max_norm);
      const double norm = std::sqrt(make_gradients(step, kind)) * input.gradient_scale;
      norms.push_back(norm);
      ++updates;
      update(input, norm);
    } else {
      norms.push_back(0.0);
    }
    std::vector<float> all;
    for (const Tensor& tensor : tensors_) all.insert(all.end(), tensor.p.begin(), tensor.p.end());
    after.push_back(std::move(all));
    updates_after.push_back(updates);
    add_hash();
  }

  const ModelSpec model_;
  std::vector<Tensor> tensors_;
  std::vector<TensorId> by_name_;
  std::vector<StreamHash128> state_hashes_;  // [0] as created, then after each step
};

}  // namespace penstock::testing
