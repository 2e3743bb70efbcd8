// Level 0 from C++: one fused AdamW update after another on the program's own arrays.
//
// c++ -std=c++17 main.cpp $(pkg-config --cflags --libs penstock)     expected output: expected.txt

#include <array>
#include <cstdio>
#include <limits>

#include "penstock/penstock.hpp"

int main() try {
  std::array<float, 4> p = {1, -2, 3, -4}, grad{}, m{}, v{};

  penstock_optimizer_args args = penstock::optimizer_args();
  args.lr = 0.1;
  args.weight_decay = 0.01;
  penstock_optimizer_arrays arrays = penstock::optimizer_arrays();
  arrays.n = p.size();
  arrays.p = p.data(), arrays.m = m.data(), arrays.v = v.data(), arrays.grad = grad.data();

  for (args.t = 1; args.t <= 3; ++args.t) {
    grad = p;  // of the loss p^2 / 2
    if (!penstock::optimizer_step(args, arrays)) return 1;
    std::printf("update %d: %.6f %.6f %.6f %.6f\n", static_cast<int>(args.t),
                static_cast<double>(p[0]), static_cast<double>(p[1]), static_cast<double>(p[2]),
                static_cast<double>(p[3]));
  }
  grad[2] = std::numeric_limits<float>::infinity();
  std::printf("an infinite gradient: applied %d\n",
              static_cast<int>(penstock::optimizer_step(args, arrays)));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
