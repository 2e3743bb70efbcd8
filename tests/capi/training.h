#pragma once

/** A small training in pure C, through penstock.h only, at either level.
 *
 * Gradients depend on the weights that the trainer sees, so a stale one shows in all that follows.
 */

#include <stdint.h>

#include "penstock/penstock.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  kTrainingTensors = 8,
  kTrainingGroups = 5,
  kTrainingSteps = 7,
  kTrainingVisits = 6, /* of groups, in forward and in backward */
  kInfiniteStep = 3,   /* a gradient is infinite: not applied */
  kSkippedStep = 4,
  kEvaluatedStep = 2 /* followed by an evaluation */
};

typedef struct training_tensor {
  const char* name;
  uint32_t group;
  int32_t rank;
  int64_t shape[2];
  uint32_t contributions;
  penstock_init init;
  uint64_t elements;
} training_tensor;

extern const training_tensor kTraining[kTrainingTensors];
extern const char* const kTrainingGroupNames[kTrainingGroups];
extern const uint32_t kTrainingForward[kTrainingVisits], kTrainingBackward[kTrainingVisits];

/* Contribution k of tensor t's gradient at `step`, element i, for the bf16 weight w. */
float training_gradient(uint64_t step, uint32_t t, uint32_t k, uint64_t i, uint16_t w);
/* The hyper-parameters of a step. */
void training_input(uint64_t step, penstock_step_input* input);

typedef struct training_options {
  const char* directory;
  int32_t level;
  uint64_t extra_bytes;         /* host budget above the minimum */
  penstock_dtype weights_dtype; /* level 1: F32 or BF16 */
  int32_t lent;
  uint32_t threads;
  const char* queue;
  void (*opened)(void); /* called once the engine is open, unless NULL */
} training_options;

typedef struct training_result {
  double norms[kTrainingSteps];
  uint64_t updates, committed_step;
  float* masters; /* all tensors, one after another; the caller's */
  char error[512];
} training_result;

/* 0, or the line of the call that failed, with its message in result->error. */
int training_run(const training_options* options, training_result* result);

#ifdef __cplusplus
}
#endif
