/* Level 0 from C: one fused AdamW update after another on the program's own arrays.
 *
 * cc main.c $(pkg-config --cflags --libs penstock)     expected output: expected.txt
 */
#include <stdio.h>

#include "penstock/penstock.h"

/* Ends main with the sentence of the call that failed. */
#define TRY(call)                                     \
  do {                                                \
    if ((call) != PENSTOCK_OK) {                      \
      fprintf(stderr, "%s\n", penstock_last_error()); \
      return 1;                                       \
    }                                                 \
  } while (0)

int main(void) {
  float p[4] = {1, -2, 3, -4}, grad[4], m[4] = {0}, v[4] = {0};

  penstock_optimizer_args args;
  penstock_optimizer_arrays arrays;
  TRY(penstock_optimizer_args_init(&args, sizeof args));
  TRY(penstock_optimizer_arrays_init(&arrays, sizeof arrays));
  args.lr = 0.1;
  args.weight_decay = 0.01;
  arrays.n = 4;
  arrays.p = p, arrays.m = m, arrays.v = v, arrays.grad = grad;

  for (args.t = 1; args.t <= 3; ++args.t) {
    for (int i = 0; i < 4; ++i) grad[i] = p[i]; /* of the loss p^2 / 2 */
    int32_t applied;
    TRY(penstock_cpu_optimizer_step(&args, &arrays, NULL, &applied));
    printf("update %d: %.6f %.6f %.6f %.6f\n", (int)args.t, p[0], p[1], p[2], p[3]);
  }
  grad[2] = 1.0F / 0.0F;
  int32_t applied;
  TRY(penstock_cpu_optimizer_step(&args, &arrays, NULL, &applied));
  printf("an infinite gradient: applied %d\n", (int)applied);
  return 0;
}
