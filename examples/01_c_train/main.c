/* Trains a line y = w x + b through the C interface: the whole loop of a trainer at level 2.
 *
 * usage: 01_c_train DIRECTORY     (the store's; run it again and it goes on where it was)
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "penstock/penstock.h"

enum { kInputs = 8, kSteps = 300 };

/* Ends main with the sentence of the call that failed. */
#define TRY(call)                                     \
  do {                                                \
    if ((call) != PENSTOCK_OK) {                      \
      fprintf(stderr, "%s\n", penstock_last_error()); \
      return 1;                                       \
    }                                                 \
  } while (0)

static float widen(uint16_t bf16) { /* the upper half of a float */
  uint32_t bits = (uint32_t)bf16 << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

int main(int argc, char** argv) {
  if (argc != 2) return fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]), 2;

  penstock_engine_options options;
  TRY(penstock_engine_options_init(&options, sizeof options));
  options.directory = argv[1];
  options.threads = 1;
  penstock_engine* engine;
  TRY(penstock_engine_create(&options, &engine));

  penstock_group layer;
  penstock_tensor weights;
  TRY(penstock_group_register(engine, "layer", &layer));
  penstock_tensor_desc desc;
  TRY(penstock_tensor_desc_init(&desc, sizeof desc));
  desc.name = "layer.weights"; /* w of each input, then b */
  desc.group = layer;
  desc.rank = 1;
  desc.shape[0] = kInputs + 1;
  TRY(penstock_tensor_register(engine, &desc, &weights));

  uint64_t minimum, step, offset;
  TRY(penstock_plan_minimum_bytes(engine, PENSTOCK_TIER_HOST, &minimum));
  TRY(penstock_engine_set_budget(engine, PENSTOCK_TIER_HOST, minimum));
  TRY(penstock_engine_open(engine));
  TRY(penstock_tensor_offset(engine, weights, &offset));
  TRY(penstock_step(engine, &step));
  if (step > 0) printf("resumed after step %llu\n", (unsigned long long)step);

  penstock_lease lease;
  TRY(penstock_lease_init(&lease, sizeof lease));
  double error = 0.0;
  for (; step < kSteps; ++step) {
    float x[kInputs], y = 0.5f, gradient[kInputs + 1];
    for (int i = 0; i < kInputs; ++i) { /* the truth: w_i = i / 8, b = 0.5 */
      const double n = (double)(step * kInputs + (uint64_t)i + 1);
      x[i] = (float)sin(0.7 * n * n);
      y += x[i] * (float)i / 8.0f;
    }
    TRY(penstock_step_begin(engine));
    TRY(penstock_acquire(engine, layer, &lease));
    const uint16_t* w = (const uint16_t*)lease.data + offset;
    float guess = widen(w[kInputs]);
    for (int i = 0; i < kInputs; ++i) guess += widen(w[i]) * x[i];
    for (int i = 0; i < kInputs; ++i) gradient[i] = (guess - y) * x[i];
    gradient[kInputs] = guess - y;
    TRY(penstock_grad(engine, weights, gradient, PENSTOCK_F32, 0, 1));
    TRY(penstock_release(engine, &lease));
    penstock_step_input input;
    TRY(penstock_step_input_init(&input, sizeof input));
    input.lr = 0.03;
    TRY(penstock_step_end(engine, &input, NULL, 0, NULL));
    error = 0.9 * error + 0.1 * (double)((guess - y) * (guess - y));
    if (step % 50 == 49) printf("step %llu  error %.5f\n", (unsigned long long)step + 1, error);
  }
  TRY(penstock_flush(engine)); /* the last step is now on the drive */

  float master[kInputs + 1];
  TRY(penstock_export_master(engine, weights, master, kInputs + 1));
  for (int i = 0; i <= kInputs; ++i) printf("%s%.3f", i == 0 ? "weights " : " ", (double)master[i]);
  printf("\n");
  TRY(penstock_engine_destroy(engine));
  return fabs((double)master[kInputs] - 0.5) < 0.05 ? 0 : 3;
}
