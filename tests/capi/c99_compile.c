/* The header is strict C99, and the sizes that programs were compiled with stay what they are. */
#include <stddef.h>
#include <stdio.h>

#include "penstock/penstock.h"

#define SAME(a, b)                                                                         \
  do {                                                                                     \
    if ((size_t)(a) != (size_t)(b)) {                                                      \
      fprintf(stderr, "%s is %lu, not %lu\n", #a, (unsigned long)(a), (unsigned long)(b)); \
      ++failures;                                                                          \
    }                                                                                      \
  } while (0)

int main(void) {
  int failures = 0;
  SAME(sizeof(penstock_engine_options), 144);
  SAME(sizeof(penstock_tensor_desc), 144);
  SAME(sizeof(penstock_lease), 48);
  SAME(sizeof(penstock_step_input), 64);
  SAME(sizeof(penstock_step_report), 48);
  SAME(sizeof(penstock_optimizer_args), 112);
  SAME(sizeof(penstock_optimizer_arrays), 136);
  SAME(offsetof(penstock_engine_options, host_budget_bytes), 24);
  SAME(offsetof(penstock_engine_options, log_min_level), 120);
  SAME(offsetof(penstock_tensor_desc, weights), 128);
  SAME(offsetof(penstock_lease, token), 40);
  SAME(offsetof(penstock_step_input, gradient_scale), 56);
  SAME(offsetof(penstock_step_report, clip), 40);
  SAME(offsetof(penstock_optimizer_args, gradient_factor), 56);
  SAME(offsetof(penstock_optimizer_args, momentum), 64);
  SAME(offsetof(penstock_optimizer_args, gradients_checked), 100);
  SAME(offsetof(penstock_optimizer_arrays, n), 16);
  SAME(offsetof(penstock_optimizer_args, seed), 104);
  SAME(offsetof(penstock_optimizer_arrays, out), 80);
  SAME(offsetof(penstock_optimizer_arrays, first_element), 96);
  SAME(offsetof(penstock_optimizer_arrays, bf16_weights), 128);
  SAME(penstock_version(),
       PENSTOCK_VERSION_MAJOR * 10000 + PENSTOCK_VERSION_MINOR * 100 + PENSTOCK_VERSION_PATCH);
  return failures;
}
