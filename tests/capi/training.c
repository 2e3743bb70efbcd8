#include "capi/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const training_tensor kTraining[kTrainingTensors] = {
    {"wte", 0, 2, {200, 96}, 2, PENSTOCK_INIT_NORMAL, 200 * 96},
    {"h.0.w", 1, 2, {96, 300}, 1, PENSTOCK_INIT_NORMAL, 96 * 300},
    {"h.0.b", 1, 1, {33, 1}, 1, PENSTOCK_INIT_ZEROS, 33},
    {"h.1.w", 2, 2, {96, 300}, 1, PENSTOCK_INIT_NORMAL, 96 * 300},
    {"h.1.b", 2, 1, {33, 1}, 1, PENSTOCK_INIT_ZEROS, 33},
    {"h.2.w", 3, 2, {96, 300}, 1, PENSTOCK_INIT_NORMAL, 96 * 300},
    {"h.2.b", 3, 1, {33, 1}, 1, PENSTOCK_INIT_ZEROS, 33},
    {"norm", 4, 1, {96, 1}, 1, PENSTOCK_INIT_CONSTANT, 96},
};
const char* const kTrainingGroupNames[kTrainingGroups] = {"embed", "h.0", "h.1", "h.2", "head"};
const uint32_t kTrainingForward[kTrainingVisits] = {0, 1, 2, 3, 4, 0};
const uint32_t kTrainingBackward[kTrainingVisits] = {0, 4, 3, 2, 1, 0};

float training_gradient(uint64_t step, uint32_t t, uint32_t k, uint64_t i, uint16_t w) {
  uint64_t hash = (step * 1000003u + t * 16u + k) * 0x9e3779b97f4a7c15u + i;
  uint32_t bits = (uint32_t)w << 16;
  float weight, noise;
  hash = (hash ^ (hash >> 31)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 29)) * 0x94d049bb133111ebu;
  noise = (float)((double)(hash >> 40) / 16777216.0 - 0.5);
  memcpy(&weight, &bits, sizeof weight);
  if (step == kInfiniteStep && t == 3 && i == 17) return INFINITY;
  return 0.05f * weight + 0.02f * noise;
}

void training_input(uint64_t step, penstock_step_input* input) {
  input->lr = 1e-2 / (double)step;
  input->beta2 = 0.95;
  input->weight_decay = 0.1;
  input->max_norm = 0.5;
  input->gradient_scale = 0.5;
}

typedef struct trainer {
  const training_options* options;
  training_result* result;
  penstock_engine* engine;
  penstock_group groups[kTrainingGroups];
  penstock_tensor tensors[kTrainingTensors];
  void* weights[kTrainingTensors];
  float* gradient;
} trainer;

#define TRY(call)                                                                             \
  do {                                                                                        \
    if ((call) != PENSTOCK_OK) {                                                              \
      snprintf(self->result->error, sizeof self->result->error, "%s", penstock_last_error()); \
      return __LINE__;                                                                        \
    }                                                                                         \
  } while (0)

#define INNER(call)             \
  do {                          \
    const int line = (call);    \
    if (line != 0) return line; \
  } while (0)

static int describe(trainer* self) {
  penstock_group forward[kTrainingVisits], backward[kTrainingVisits];
  uint32_t i;
  for (i = 0; i < kTrainingGroups; ++i) {
    TRY(penstock_group_register(self->engine, kTrainingGroupNames[i], &self->groups[i]));
  }
  for (i = 0; i < kTrainingTensors; ++i) {
    const training_tensor* tensor = &kTraining[i];
    penstock_tensor_desc desc;
    TRY(penstock_tensor_desc_init(&desc, sizeof desc));
    desc.name = tensor->name;
    desc.group = self->groups[tensor->group];
    desc.rank = tensor->rank;
    memcpy(desc.shape, tensor->shape, sizeof tensor->shape);
    desc.decay = tensor->rank >= 2;
    desc.contributions = tensor->contributions;
    desc.init = tensor->init;
    desc.init_constant = 1.0f;
    desc.init_deviation = 0.02f;
    desc.weights = self->weights[i];
    desc.weights_dtype = self->weights[i] ? self->options->weights_dtype : PENSTOCK_DTYPE_NONE;
    desc.lent = self->options->lent;
    TRY(penstock_tensor_register(self->engine, &desc, &self->tensors[i]));
  }
  if (self->options->level == 1) return 0;
  for (i = 0; i < kTrainingVisits; ++i) {
    forward[i] = self->groups[kTrainingForward[i]];
    backward[i] = self->groups[kTrainingBackward[i]];
  }
  TRY(penstock_set_order(self->engine, forward, kTrainingVisits, backward, kTrainingVisits));
  return 0;
}

static int open_engine(trainer* self) {
  penstock_engine_options options;
  uint64_t minimum;
  TRY(penstock_engine_options_init(&options, sizeof options));
  options.directory = self->options->directory;
  options.level = self->options->level;
  options.mode = PENSTOCK_CREATE;
  options.threads = self->options->threads;
  options.queue = self->options->queue;
  options.block_elements = 16384;
  options.commit_every = 1;
  options.seed = 11;
  TRY(penstock_engine_create(&options, &self->engine));
  INNER(describe(self));
  TRY(penstock_plan_minimum_bytes(self->engine, PENSTOCK_TIER_HOST, &minimum));
  TRY(penstock_engine_set_budget(self->engine, PENSTOCK_TIER_HOST,
                                 minimum + self->options->extra_bytes));
  TRY(penstock_engine_open(self->engine));
  return 0;
}

static uint16_t upper_half(const trainer* self, uint32_t t, uint64_t i) {
  uint32_t bits;
  if (self->options->weights_dtype == PENSTOCK_BF16) return ((uint16_t*)self->weights[t])[i];
  memcpy(&bits, (float*)self->weights[t] + i, sizeof bits);
  return (uint16_t)((bits + 0x8000u) >> 16);
}

static int give(trainer* self, uint64_t step, uint32_t t, uint32_t k, const uint16_t* hi) {
  uint64_t i;
  for (i = 0; i < kTraining[t].elements; ++i) {
    self->gradient[i] = training_gradient(step, t, k, i, hi ? hi[i] : upper_half(self, t, i));
  }
  TRY(penstock_grad(self->engine, self->tensors[t], self->gradient, PENSTOCK_F32, k,
                    kTraining[t].contributions));
  return 0;
}

static int visit(trainer* self, uint32_t group, uint64_t step, uint32_t k) {
  penstock_lease lease;
  uint32_t t;
  TRY(penstock_lease_init(&lease, sizeof lease));
  TRY(penstock_acquire(self->engine, self->groups[group], &lease));
  for (t = 0; step > 0 && t < kTrainingTensors; ++t) {
    uint64_t offset;
    if (kTraining[t].group != group) continue;
    TRY(penstock_tensor_offset(self->engine, self->tensors[t], &offset));
    INNER(give(self, step, t, kTraining[t].contributions == 1 ? 0 : k,
               (const uint16_t*)lease.data + offset));
  }
  TRY(penstock_release(self->engine, &lease));
  return 0;
}

static int gradients(trainer* self, uint64_t step) {
  uint32_t i, k;
  uint64_t updates;
  if (self->options->level == 2) {
    for (i = 0; i < kTrainingVisits; ++i) INNER(visit(self, kTrainingForward[i], 0, 0));
    for (i = 0; i < kTrainingVisits; ++i) {
      INNER(visit(self, kTrainingBackward[i], step, i == 0 ? 1 : 0));
    }
    return 0;
  }
  TRY(penstock_updates(self->engine, &updates));
  for (i = 0; i < kTrainingTensors; ++i) {
    TRY(penstock_wait(self->engine, self->tensors[i], updates));
    for (k = 0; k < kTraining[i].contributions; ++k) INNER(give(self, step, i, k, NULL));
  }
  return 0;
}

static int run_step(trainer* self, uint64_t step) {
  penstock_step_input input;
  penstock_step_report report;
  uint32_t i;
  TRY(penstock_step_input_init(&input, sizeof input));
  TRY(penstock_step_report_init(&report, sizeof report));
  training_input(step, &input);
  TRY(penstock_step_begin(self->engine));
  INNER(gradients(self, step));
  if (step == kSkippedStep) {
    TRY(penstock_step_skip(self->engine, &step, sizeof step, &report));
  } else {
    TRY(penstock_step_end(self->engine, &input, &step, sizeof step, &report));
  }
  self->result->norms[step - 1] = report.applied ? report.norm : 0.0;
  if (step != kEvaluatedStep || self->options->level != 2) return 0;
  TRY(penstock_eval_begin(self->engine));
  for (i = 0; i < kTrainingVisits; ++i) INNER(visit(self, kTrainingForward[i], 0, 0));
  TRY(penstock_eval_end(self->engine));
  return 0;
}

static int run_all(trainer* self) {
  uint64_t step, at = 0;
  uint32_t t;
  INNER(open_engine(self));
  if (self->options->opened) self->options->opened();
  for (step = 1; step <= kTrainingSteps; ++step) INNER(run_step(self, step));
  TRY(penstock_flush(self->engine));
  TRY(penstock_updates(self->engine, &self->result->updates));
  TRY(penstock_committed_step(self->engine, &self->result->committed_step));
  for (t = 0; t < kTrainingTensors; ++t) {
    TRY(penstock_export_master(self->engine, self->tensors[t], self->result->masters + at,
                               kTraining[t].elements));
    at += kTraining[t].elements;
  }
  TRY(penstock_engine_destroy(self->engine));
  self->engine = NULL;
  return 0;
}

int training_run(const training_options* options, training_result* result) {
  trainer self = {0};
  uint32_t t;
  int line;
  self.options = options;
  self.result = result;
  self.gradient = malloc(sizeof(float) * 96 * 300);
  for (t = 0; options->level == 1 && t < kTrainingTensors; ++t) {
    self.weights[t] = calloc(kTraining[t].elements, sizeof(float));
  }
  line = run_all(&self);
  penstock_engine_destroy(self.engine);
  for (t = 0; t < kTrainingTensors; ++t) free(self.weights[t]);
  free(self.gradient);
  return line;
}
