#include "kernels/transformer_scenarios.hpp"

#include <xmmintrin.h>

#include <cmath>

namespace penstock::test {

void* ScenarioArrays::memory(std::size_t bytes) {
  buffers_.push_back(std::make_unique<GuardedBuffer>(bytes));
  return buffers_.back()->data();
}

float ScenarioArrays::value() {
  constexpr float kSpecials[] = {0.0F,     -0.0F,     INFINITY, -INFINITY, NAN,
                                 3.4e38F,  -3.4e38F,  1e-38F,   -1e-40F,   1e-45F,
                                 88.7228F, -87.3366F, 1.0F,     -1.0F,     1e30F};
  constexpr std::uint64_t kOneIn = 24;
  switch (content_) {
    case Content::kDenormal:
      return static_cast<float>(random_.normal() * (random_.next() % 2 == 0 ? 1e-38 : 1e-19));
    case Content::kSpecial:
      if (random_.next() % kOneIn == 0) return kSpecials[random_.next() % std::size(kSpecials)];
      break;
    case Content::kRandomBits:
      return float_of(random_.next_u32());
    case Content::kNormal:
      break;
  }
  return static_cast<float>(random_.normal() * 3.0);
}

float* ScenarioArrays::filled(std::size_t n) {
  auto* data = static_cast<float*>(memory(n * sizeof(float)));
  for (std::size_t i = 0; i < n; ++i) data[i] = value();
  return data;
}

const std::uint32_t* ScenarioArrays::indices(std::size_t n, std::size_t bound) {
  auto* data = static_cast<std::uint32_t*>(memory(n * sizeof(std::uint32_t)));
  for (std::size_t i = 0; i < n; ++i) {
    data[i] = random_.next() % 8 == 0 ? kNoTarget
                                      : static_cast<std::uint32_t>(random_.next() % (bound + 1));
  }
  return data;
}

const std::uint16_t* ScenarioArrays::halves(std::size_t n) {
  auto* data = static_cast<std::uint16_t*>(memory(n * sizeof(std::uint16_t)));
  for (std::size_t i = 0; i < n; ++i) data[i] = random_.next_u16();
  return data;
}

std::vector<std::uint32_t> ScenarioArrays::result() const {
  std::vector<std::uint32_t> all;
  for (const auto& [data, n] : written_) {
    for (std::size_t i = 0; i < n; ++i) all.push_back(canonical_bits(data[i]));
  }
  return all;
}

namespace {

constexpr float kNormEps = 1e-5F;
constexpr float kScale = 0.2F;

ScenarioCall rmsnorm_forward(const Rows& s, ScenarioArrays& a) {
  return [s, x = a.in(s.rows * s.n), weight = a.in(s.n), y = a.out(s.rows * s.n),
          rstd = a.out(s.rows)](const TransformerKernels& k) {
    s.each_group([&](std::size_t r, std::size_t rows) {
      k.rmsnorm_forward(rows, s.n, kNormEps, x + r * s.n, weight, y + r * s.n, rstd + r);
    });
  };
}
ScenarioCall rmsnorm_backward(const Rows& s, ScenarioArrays& a) {
  return
      [s, dy = a.in(s.rows * s.n), x = a.in(s.rows * s.n), weight = a.in(s.n), rstd = a.in(s.rows),
       dx = a.out(s.rows * s.n), dweight = a.out(s.n)](const TransformerKernels& k) {
        s.each_group([&](std::size_t r, std::size_t rows) {
          k.rmsnorm_backward(rows, s.n, dy + r * s.n, x + r * s.n, weight, rstd + r, dx + r * s.n,
                             dweight);
        });
      };
}
ScenarioCall layernorm_forward(const Rows& s, ScenarioArrays& a) {
  return [s, x = a.in(s.rows * s.n), weight = a.in(s.n), bias = a.in(s.n), y = a.out(s.rows * s.n),
          mean = a.out(s.rows), rstd = a.out(s.rows)](const TransformerKernels& k) {
    s.each_group([&](std::size_t r, std::size_t rows) {
      k.layernorm_forward(rows, s.n, kNormEps, x + r * s.n, weight, bias, y + r * s.n, mean + r,
                          rstd + r);
    });
  };
}
ScenarioCall layernorm_backward(const Rows& s, ScenarioArrays& a) {
  return [s, dy = a.in(s.rows * s.n), x = a.in(s.rows * s.n), weight = a.in(s.n),
          mean = a.in(s.rows), rstd = a.in(s.rows), dx = a.out(s.rows * s.n), dweight = a.out(s.n),
          dbias = a.out(s.n)](const TransformerKernels& k) {
    s.each_group([&](std::size_t r, std::size_t rows) {
      k.layernorm_backward(rows, s.n, dy + r * s.n, x + r * s.n, weight, mean + r, rstd + r,
                           dx + r * s.n, dweight, dbias);
    });
  };
}
ScenarioCall causal_softmax(const Rows& s, ScenarioArrays& a) {
  return [s, x = a.out(s.rows * s.n)](const TransformerKernels& k) {
    s.each_group([&](std::size_t r, std::size_t rows) {
      k.causal_softmax(rows, s.n, s.n / 2 + r, kScale, x + r * s.n);
    });
  };
}
ScenarioCall softmax_backward(const Rows& s, ScenarioArrays& a) {
  return [s, p = a.in(s.rows * s.n), dp = a.out(s.rows * s.n)](const TransformerKernels& k) {
    s.each_group([&](std::size_t r, std::size_t rows) {
      k.softmax_backward(rows, s.n, s.n / 2 + r, kScale, p + r * s.n, dp + r * s.n);
    });
  };
}
ScenarioCall rope(const Rows& s, ScenarioArrays& a) {
  constexpr std::size_t kHeads = 2;
  return [s, cosine = a.in(s.rows * s.n), sine = a.in(s.rows * s.n),
          x = a.out(s.rows * kHeads * 2 * s.n)](const TransformerKernels& k) {
    s.each_group([&](std::size_t r, std::size_t rows) {
      k.rope(rows, kHeads, s.n, cosine + r * s.n, sine + r * s.n, -1.0F, x + r * kHeads * 2 * s.n);
    });
  };
}
ScenarioCall activations(const Rows& s, ScenarioArrays& a) {
  const std::size_t size = s.rows * s.n;
  return [s, x = a.in(size), up = a.in(size), dy = a.in(size), gelu = a.out(size),
          gelu_dx = a.out(size), swiglu = a.out(size), dgate = a.out(size),
          dup = a.out(size)](const TransformerKernels& k) {
    s.each_group([&](std::size_t r, std::size_t rows) {
      const std::size_t at = r * s.n;
      const std::size_t n = rows * s.n;
      k.gelu_forward(n, x + at, gelu + at);
      k.gelu_backward(n, x + at, dy + at, gelu_dx + at);
      k.swiglu_forward(n, x + at, up + at, swiglu + at);
      k.swiglu_backward(n, x + at, up + at, dy + at, dgate + at, dup + at);
    });
  };
}
ScenarioCall sums(const Rows& s, ScenarioArrays& a) {
  const std::size_t size = s.rows * s.n;
  return [s, x = a.in(size), y = a.in(size), bias = a.in(s.n), sum = a.out(size),
          into = a.out(size), scaled = a.out(size), biased = a.out(size),
          dbias = a.out(s.n)](const TransformerKernels& k) {
    s.each_group([&](std::size_t r, std::size_t rows) {
      const std::size_t at = r * s.n;
      k.add(rows * s.n, x + at, y + at, sum + at);
      k.add_into(rows * s.n, x + at, into + at);
      k.scale(rows * s.n, kScale, scaled + at);
      k.bias_add(rows, s.n, bias, biased + at);
      k.bias_backward(rows, s.n, x + at, dbias);
    });
  };
}
ScenarioCall loss_fold(const Rows& s, ScenarioArrays& a) {
  return [s, logits = a.in(s.rows * s.n), targets = a.indices(s.rows, s.n + 5),
          maximum = a.out(s.rows), sum = a.out(s.rows), target_logit = a.out(s.rows),
          loss = a.out(s.rows)](const TransformerKernels& k) {
    s.each_group([&](std::size_t r, std::size_t rows) {
      k.loss_fold(rows, s.n, 3, logits + r * s.n, targets + r, maximum + r, sum + r,
                  target_logit + r);
      k.loss_value(rows, targets + r, maximum + r, sum + r, target_logit + r, loss + r);
    });
  };
}
ScenarioCall loss_backward(const Rows& s, ScenarioArrays& a) {
  return [s, targets = a.indices(s.rows, s.n + 5), maximum = a.in(s.rows), sum = a.in(s.rows),
          logits = a.out(s.rows * s.n)](const TransformerKernels& k) {
    s.each_group([&](std::size_t r, std::size_t rows) {
      k.loss_backward(rows, s.n, 3, kScale, targets + r, maximum + r, sum + r, logits + r * s.n);
    });
  };
}
ScenarioCall embedding(const Rows& s, ScenarioArrays& a) {
  constexpr std::size_t kCount = 5;
  return [s, tokens = a.indices(s.rows, kCount + 2), table = a.halves(kCount * s.n),
          dy = a.in(s.rows * s.n), out = a.out(s.rows * s.n),
          dtable = a.out(kCount * s.n)](const TransformerKernels& k) {
    s.each_group([&](std::size_t r, std::size_t rows) {
      k.embedding_gather(rows, s.n, 1, kCount, tokens + r, table, out + r * s.n);
      k.embedding_backward(rows, s.n, 1, kCount, tokens + r, dy + r * s.n, dtable);
    });
  };
}
ScenarioCall elementary(const Rows& s, ScenarioArrays& a) {
  const std::size_t size = s.rows * s.n;
  return [s, x = a.in(size), exp = a.out(size), tanh = a.out(size),
          log = a.out(size)](const TransformerKernels& k) {
    s.each_group([&](std::size_t r, std::size_t rows) {
      k.exp(rows * s.n, x + r * s.n, exp + r * s.n);
      k.tanh(rows * s.n, x + r * s.n, tanh + r * s.n);
      k.log(rows * s.n, x + r * s.n, log + r * s.n);
    });
  };
}

constexpr Scenario kScenarios[] = {
    {"rmsnorm_forward", rmsnorm_forward},
    {"rmsnorm_backward", rmsnorm_backward},
    {"layernorm_forward", layernorm_forward},
    {"layernorm_backward", layernorm_backward},
    {"causal_softmax", causal_softmax},
    {"softmax_backward", softmax_backward},
    {"rope", rope},
    {"activations", activations},
    {"sums", sums},
    {"loss_fold", loss_fold},
    {"loss_backward", loss_backward},
    {"embedding", embedding},
    {"elementary", elementary},
};

}  // namespace

std::span<const Scenario> transformer_scenarios() {
  return kScenarios;
}

std::vector<std::uint32_t> run_scenario(const Scenario& scenario, const TransformerKernels& kernels,
                                        const Rows& rows, Content content, unsigned mxcsr,
                                        bool* restored) {
  ScenarioArrays arrays(rows.rows * 1000 + rows.n, content);
  const ScenarioCall call = scenario.prepare(rows, arrays);
  const unsigned before = _mm_getcsr();
  if (mxcsr != 0) _mm_setcsr(mxcsr);
  call(kernels);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  if (restored != nullptr) *restored = after == (mxcsr != 0 ? mxcsr : before);
  return arrays.result();
}

std::string compare_tables(const TransformerKernels& a, const TransformerKernels& b) {
  constexpr Rows kShapes[] = {{3, 1, 3},  {5, 7, 5},   {2, 16, 2},  {4, 17, 4},   {3, 24, 3},
                              {3, 31, 3}, {9, 100, 9}, {2, 333, 2}, {1, 1500, 1}, {0, 16, 1}};
  for (const Scenario& scenario : transformer_scenarios()) {
    for (const Content content :
         {Content::kNormal, Content::kDenormal, Content::kSpecial, Content::kRandomBits}) {
      for (const Rows& rows : kShapes) {
        const auto of_a = run_scenario(scenario, a, rows, content);
        const auto of_b = run_scenario(scenario, b, rows, content);
        for (std::size_t i = 0; i < of_a.size(); ++i) {
          if (of_a[i] == of_b[i]) continue;
          return std::string(scenario.name) + ", content " +
                 std::to_string(static_cast<int>(content)) + ", " + std::to_string(rows.rows) +
                 " rows of " + std::to_string(rows.n) + ": output " + std::to_string(i) +
                 " differs: " + std::to_string(of_a[i]) + " and " + std::to_string(of_b[i]);
        }
      }
    }
  }
  return "";
}

}  // namespace penstock::test
