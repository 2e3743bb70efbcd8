#pragma once
/* lint: long because the C interface is one header */

/** The C interface of Penstock, which trains models larger than memory.
 *
 * Level 0: one fused optimizer step on the caller's arrays (penstock_cpu_optimizer_step).
 * Level 1: the trainer keeps its weights; the engine keeps master weights and moments, takes
 *          gradients and writes the updated weights back.
 * Level 2: the engine also streams the weights: acquire before use, release after.
 *
 *   create -> register groups and tensors -> open -> steps -> flush -> destroy
 *   a step at level 2: step_begin, forward {acquire, release}..., backward {acquire, grad...,
 *                      release}..., step_end
 *   a step at level 1: wait..., step_begin, grad..., step_end
 *
 * Return:    everything that can fail returns a penstock_status. Outputs are written only on
 *            PENSTOCK_OK.
 * Message:   penstock_last_error() says in one sentence why the calling thread's last call failed.
 *            The first failure of background work is sticky: every later call on that engine but
 *            destroy and the plain facts returns it. The last commit stays valid.
 * Handles:   engines and pools are handles, not addresses. A null, stale or foreign handle, tensor,
 *            group or lease is refused with a status, and so is every handle that a forked child
 *            inherits. So is NULL for an output, unless its comment allows it.
 * Ownership: create and destroy pair up. Arrays are the caller's; strings passed in are copied;
 *            char* results are freed with penstock_free.
 * Structs:   the first member is struct_size. Fill them with the *_init function, passing sizeof,
 *            then set fields. A library takes every size it has ever had, and a larger one only if
 *            the bytes that it does not know are zero. Reserved members stay zero.
 * Units:     sizes in bytes, times in nanoseconds, lengths in elements; the name says which.
 * Threads:   calls on one engine are serialised; a step is meant to be driven by one thread. Facts
 *            (error, step, updates, committed_step, stats_json) never wait for a running call.
 * Callbacks: run inside the library; calls on handles from inside one are refused. They must not
 *            throw or jump out.
 */

#include <stddef.h>
#include <stdint.h>

#define PENSTOCK_VERSION_MAJOR 0
#define PENSTOCK_VERSION_MINOR 1
#define PENSTOCK_VERSION_PATCH 0

#define PENSTOCK_API __attribute__((visibility("default")))
#define PENSTOCK_NODISCARD __attribute__((warn_unused_result))

#ifdef __cplusplus
extern "C" {
#endif

/* ==== status, version ======================================================================= */

typedef int32_t penstock_status;
enum {
  PENSTOCK_OK = 0,
  PENSTOCK_E_ARGUMENT = 1,    /* caller's mistake; the message names the argument and the limit */
  PENSTOCK_E_STATE = 2,       /* out of order, a stale handle, a store in use */
  PENSTOCK_E_NO_MEMORY = 3,   /* a byte budget is too small; which tier, and how much is short */
  PENSTOCK_E_NO_SPACE = 4,    /* a drive is too small or full */
  PENSTOCK_E_IO = 5,          /* a failed or short transfer */
  PENSTOCK_E_CORRUPT = 6,     /* a checksum or a format does not match */
  PENSTOCK_E_UNSUPPORTED = 7, /* missing in this build, kernel or machine */
  PENSTOCK_E_TIMEOUT = 8,
  PENSTOCK_E_CANCELLED = 9,
  PENSTOCK_E_DEVICE = 10,
  PENSTOCK_E_INTERNAL = 99 /* a failed internal check: please report it */
};

/* "E_ARGUMENT" and so on; "unknown" for other numbers. Never NULL. */
PENSTOCK_API const char* penstock_status_name(penstock_status status);

/* Why the calling thread's last call failed; "" if it did not. Valid until its next call. */
PENSTOCK_API const char* penstock_last_error(void);

/* Of the loaded library: major * 10000 + minor * 100 + patch. */
PENSTOCK_API uint32_t penstock_version(void);

/* One JSON object: version, compiler, build type, instruction set, features. Static. */
PENSTOCK_API const char* penstock_build_info(void);

/* Frees a char* result. NULL is fine. */
PENSTOCK_API void penstock_free(void* memory);

/* ==== vocabulary ============================================================================ */

typedef struct penstock_engine penstock_engine;
typedef struct penstock_pool penstock_pool;
typedef uint64_t penstock_tensor; /* of one engine; 0: none */
typedef uint64_t penstock_group;  /* of one engine; 0: none */

typedef int32_t penstock_dtype;
enum {
  PENSTOCK_DTYPE_NONE = 0,
  PENSTOCK_F32 = 1,
  PENSTOCK_F16 = 2,
  PENSTOCK_BF16 = 3,
  PENSTOCK_I8 = 4 /* states of level 0 only */
};

typedef int32_t penstock_tier;
enum { PENSTOCK_TIER_DEVICE = 1, PENSTOCK_TIER_HOST = 2, PENSTOCK_TIER_NVME = 3 };

typedef int32_t penstock_open_mode;
enum { PENSTOCK_CREATE = 1, PENSTOCK_RESUME = 2, PENSTOCK_CREATE_OR_RESUME = 3 };

typedef int32_t penstock_log_level;
enum {
  PENSTOCK_LOG_TRACE = 0,
  PENSTOCK_LOG_DEBUG = 1,
  PENSTOCK_LOG_INFO = 2,
  PENSTOCK_LOG_WARNING = 3,
  PENSTOCK_LOG_ERROR = 4
};
/* Called from any thread, one call at a time; the strings live for the call. */
typedef void (*penstock_log_fn)(void* user, penstock_log_level level, const char* file,
                                int32_t line, const char* message);

/* ==== engine ================================================================================ */

typedef struct penstock_engine_options {
  uint32_t struct_size;
  int32_t level;                /* 1 or 2; default 2 */
  const char* directory;        /* of the store; required. scratch: where its file lies */
  penstock_open_mode mode;      /* default PENSTOCK_CREATE_OR_RESUME; ignored for scratch */
  int32_t scratch;              /* 1: no commits, half the space, gone with the engine */
  uint64_t host_budget_bytes;   /* all the engine allocates in RAM; may be set before open */
  uint64_t device_budget_bytes; /* 0: this version has no device tier */
  uint64_t workspace_bytes;     /* of the host budget, lent to the trainer */
  uint32_t block_elements;      /* 0: chosen; else a multiple of 16384. A store keeps its own */
  uint32_t commit_every;        /* steps between commits; 0: chosen */
  uint64_t seed;                /* of PENSTOCK_INIT_NORMAL */
  uint32_t threads;             /* compute threads; 0: what the machine gives this process */
  uint32_t reserved;
  const char* isa;              /* "scalar", "avx2", "avx512"; NULL: the widest (PENSTOCK_ISA) */
  const char* queue;            /* "auto", "io_uring", "threads"; NULL: "auto" */
  const char* description_json; /* a JSON object kept with the store; on resume, values of common
                                   keys must be equal. NULL: {} */
  uint64_t deadline_ns;         /* a wait in which nothing moves for so long fails; default 120 s */
  penstock_log_fn log;          /* NULL: messages are dropped. Must not block */
  void* log_user;
  penstock_log_level log_min_level; /* default PENSTOCK_LOG_INFO */
  uint32_t checkpoint_room; /* of a new store: how many it can hold; a slot per block each */
  const char* const* further_directories; /* of the store's other drives; NULL with a count of 0 */
  uint64_t further_count;
} penstock_engine_options;

PENSTOCK_API penstock_status penstock_engine_options_init(penstock_engine_options* options,
                                                          size_t struct_size);

/* Checks the options and makes an engine to register tensors with. Nothing is allocated, started
 * or written before penstock_engine_open. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status
penstock_engine_create(const penstock_engine_options* options, penstock_engine** out);

/* Drains I/O and frees everything; commits nothing (penstock_flush does). Leases, the workspace and
 * the opened blob end with it. NULL is fine; a second destroy is PENSTOCK_E_STATE. */
PENSTOCK_API penstock_status penstock_engine_destroy(penstock_engine* engine);

/* The sticky failure, or PENSTOCK_OK. A fact, after open. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_engine_error(penstock_engine* engine);

/* Before open: the budget of a tier (PENSTOCK_TIER_HOST). */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_engine_set_budget(penstock_engine* engine,
                                                                           penstock_tier tier,
                                                                           uint64_t bytes);

/* ==== the model: before open ================================================================ */

/* Groups are used together (a layer). Names are unique and the same in every run. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_group_register(penstock_engine* engine,
                                                                        const char* name,
                                                                        penstock_group* out);
/* Also after open. PENSTOCK_E_ARGUMENT if there is none of that name. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_group_find(penstock_engine* engine,
                                                                    const char* name,
                                                                    penstock_group* out);

typedef int32_t penstock_init;
enum {
  PENSTOCK_INIT_ZEROS = 1,
  PENSTOCK_INIT_CONSTANT = 2,
  PENSTOCK_INIT_NORMAL = 3,      /* mean 0; a function of seed, tensor name and element */
  PENSTOCK_INIT_VALUES = 4,      /* from the callback */
  PENSTOCK_INIT_FROM_WEIGHTS = 5 /* what `weights` holds at open */
};

/* Fills out[0..count) with elements first..first+count of the tensor. Called from the thread that
 * opens, only when a store is created. */
typedef void (*penstock_values_fn)(void* user, uint64_t first, uint64_t count, float* out);

typedef struct penstock_tensor_desc {
  uint32_t struct_size;
  int32_t rank;           /* 1..8 */
  const char* name;       /* unique, the same in every run, at most 255 bytes; required */
  penstock_group group;   /* required. A group holds only frozen or only trainable, only lent or
                             only other tensors */
  int64_t shape[8];       /* row-major, outermost first; each >= 1 */
  int32_t trainable;      /* default 1. 0: frozen, takes no gradient */
  int32_t decay;          /* default 1: weight decay applies */
  uint32_t contributions; /* gradients per step (uses of a tied tensor); default 1 */
  penstock_init init;     /* default PENSTOCK_INIT_ZEROS */
  float init_constant;
  float init_deviation;
  penstock_values_fn values;
  void* values_user;
  /* [elements] of weights_dtype, aligned to its elements; valid until destroy, or until open has
   * returned at level 2, where it serves PENSTOCK_INIT_FROM_WEIGHTS only. Level 1: written at open
   * (unless it was the source of the first values) and after each update; read it only after
   * penstock_wait. */
  void* weights;
  penstock_dtype weights_dtype;
  int32_t lent; /* level 1, bf16: the array itself is the only copy of the weights' upper half */
} penstock_tensor_desc;

PENSTOCK_API penstock_status penstock_tensor_desc_init(penstock_tensor_desc* desc,
                                                       size_t struct_size);
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_tensor_register(
    penstock_engine* engine, const penstock_tensor_desc* desc, penstock_tensor* out);
/* Also after open. PENSTOCK_E_ARGUMENT if there is none of that name. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_tensor_find(penstock_engine* engine,
                                                                     const char* name,
                                                                     penstock_tensor* out);

/* The order in which groups are used; a group may come more than once. A count of 0 keeps the
 * default: forward in order of registration, backward the reverse of forward. A hint for speed:
 * results are the same in any order. At level 1 there is no backward order. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_set_order(penstock_engine* engine,
                                                                   const penstock_group* forward,
                                                                   size_t forward_count,
                                                                   const penstock_group* backward,
                                                                   size_t backward_count);

/* ==== plan, open ============================================================================ */

/* The smallest host budget that works for the registered tensors, workspace included. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_plan_minimum_bytes(penstock_engine* engine,
                                                                            penstock_tier tier,
                                                                            uint64_t* out);

/* Placement, sizes and bytes per step. Before open: for the budget as it is now. Free it. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_plan_json(penstock_engine* engine,
                                                                   char** out);

/* Commits the plan, allocates, creates or opens the store. After a failure the budget may be
 * changed and open called again. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_engine_open(penstock_engine* engine);

/* Elements of a tensor, and where it starts in its group, in elements. After open. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_tensor_elements(penstock_engine* engine,
                                                                         penstock_tensor tensor,
                                                                         uint64_t* out);
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_tensor_offset(penstock_engine* engine,
                                                                       penstock_tensor tensor,
                                                                       uint64_t* out);

/* The trainer's share of the budget: zeroed at open, 2 MiB aligned, valid until destroy. NULL and 0
 * if none was asked for. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_workspace(penstock_engine* engine,
                                                                   void** data, uint64_t* bytes);

/* 1 if open found a committed state. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_resumed(penstock_engine* engine,
                                                                 int32_t* out);
/* The trainer's blob of the state that was opened; valid until destroy. NULL and 0 if none. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_opened_blob(penstock_engine* engine,
                                                                     const void** data,
                                                                     uint64_t* bytes);

/* ==== one training step ===================================================================== */

/* The right to read a group's weights, until released. */
typedef struct penstock_lease {
  uint32_t struct_size;
  uint32_t reserved;
  penstock_group group;
  const void* data; /* bf16, the whole group; a tensor starts at penstock_tensor_offset */
  uint64_t bytes;
  uint64_t version; /* the number of applied updates that the weights hold */
  uint64_t token;   /* private */
} penstock_lease;

typedef struct penstock_step_input {
  uint32_t struct_size;
  uint32_t reserved;
  double lr, beta1, beta2, eps, weight_decay; /* defaults 1e-3, .9, .999, 1e-8, 0 */
  double max_norm;                            /* clips the gradients' norm; 0: no clipping */
  double gradient_scale; /* multiplies gradients (1/loss scale) before the norm; default 1 */
} penstock_step_input;

typedef struct penstock_step_report {
  uint32_t struct_size;
  int32_t applied; /* 0: skipped, a gradient was not finite, or there was none */
  int32_t commits; /* 1: this step's state will be committed */
  uint32_t reserved;
  uint64_t step;    /* steps ended, this one included */
  uint64_t updates; /* applied updates after this step */
  double norm;      /* of the scaled gradients */
  double clip;      /* the factor that was applied */
} penstock_step_report;

PENSTOCK_API penstock_status penstock_lease_init(penstock_lease* lease, size_t struct_size);
PENSTOCK_API penstock_status penstock_step_input_init(penstock_step_input* input,
                                                      size_t struct_size);
PENSTOCK_API penstock_status penstock_step_report_init(penstock_step_report* report,
                                                       size_t struct_size);

PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_step_begin(penstock_engine* engine);

/* Level 2. Waits until the group's weights are in memory with every update done. A group whose
 * frame another leased group occupies is refused: release that one first. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_acquire(penstock_engine* engine,
                                                                 penstock_group group,
                                                                 penstock_lease* lease);
/* Empties the lease. A second release, or that of a copy, is PENSTOCK_E_STATE. */
PENSTOCK_API penstock_status penstock_release(penstock_engine* engine, penstock_lease* lease);

/* Contribution k (from 0) of n to a tensor's gradient: [elements] of dtype, read when this returns.
 * n is the tensor's `contributions`; they come in the order 0..n-1 (two in either order), are
 * summed in fp32 and rounded to bf16 once. No gradient leaves the tensor as it is; a zero gradient
 * updates it. Refused if the weights it was computed from are known to be old: level 2, the group
 * was not acquired in this step; level 1, the tensor's last update was not waited for. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_grad(penstock_engine* engine,
                                                              penstock_tensor tensor,
                                                              const void* data,
                                                              penstock_dtype dtype, uint32_t k,
                                                              uint32_t n);

/* Fixes the step: norm, clip factor, finiteness. Updates follow when somebody needs them. `blob`
 * (may be NULL with 0 bytes, at most 1 MiB) is the trainer's own state after this step, kept with
 * its commit. No lease may be held. `report` may be NULL. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_step_end(penstock_engine* engine,
                                                                  const penstock_step_input* input,
                                                                  const void* blob,
                                                                  uint64_t blob_bytes,
                                                                  penstock_step_report* report);
/* Ends the step and drops its gradients. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_step_skip(penstock_engine* engine,
                                                                   const void* blob,
                                                                   uint64_t blob_bytes,
                                                                   penstock_step_report* report);

/* Between these, groups are acquired in forward order only and no gradient is given. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_eval_begin(penstock_engine* engine);
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_eval_end(penstock_engine* engine);

/* Level 1. Waits until the tensor's weights hold `updates` applied updates. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_wait(penstock_engine* engine,
                                                              penstock_tensor tensor,
                                                              uint64_t updates);
/* Level 1. The same without waiting; *ready becomes 0 or 1, and 1 counts as a wait. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_query(penstock_engine* engine,
                                                               penstock_tensor tensor,
                                                               uint64_t updates, int32_t* ready);

/* ==== state ================================================================================= */

/* Makes the state of the last ended step durable and waits for it (scratch: only finishes updates).
 * Between steps only, with no lease held. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_flush(penstock_engine* engine);

/* Copies a tensor's exact fp32 master weights, every update done, to out: [elements]. Between steps
 * only, with no lease held. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_export_master(penstock_engine* engine,
                                                                       penstock_tensor tensor,
                                                                       float* out,
                                                                       uint64_t elements);

/* Keeps the state of the last ended step as a checkpoint inside the store, whatever is committed
 * later; no data is written for it. Between steps. Returns at once: the checkpoint is made with the
 * commit of that step. name NULL: a rotating one, called step-<n>; the newest `keep` (at least 1)
 * of these stay. Else `keep` is ignored. PENSTOCK_E_NO_SPACE: there is no room (checkpoint_room).
 * `penstock checkpoint restore` goes back to one. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_checkpoint(penstock_engine* engine,
                                                                    const char* name,
                                                                    uint32_t keep);
/* Forgets one. PENSTOCK_E_STATE if there is none of that name. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_checkpoint_drop(penstock_engine* engine,
                                                                         const char* name);
/* Those that are durable, oldest first, and the room for them. A fact. Free it. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_checkpoints_json(penstock_engine* engine,
                                                                          char** out);

/* Copies the state of the last ended step into a new store in `directory`, on any filesystem.
 * Between steps. Returns at once: the copy is written beside the commit of that step, from memory
 * where the next steps bring the bytes there anyway. (A step that is committed already is read and
 * copied before this returns.) A copy that fails leaves the training alone; penstock_copy_json
 * says what became of it. One at a time: the next one waits. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_copy_store(penstock_engine* engine,
                                                                    const char* directory);
/* The last copy: state (none, copying, done, failed), directory, step, failure. A fact. Free it. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_copy_json(penstock_engine* engine,
                                                                   char** out);

/* Facts, from any thread. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_step(penstock_engine* engine,
                                                              uint64_t* out); /* steps ended */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_updates(penstock_engine* engine,
                                                                 uint64_t* out); /* applied */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status
penstock_committed_step(penstock_engine* engine, uint64_t* out); /* a restart returns here */
/* Bytes moved by link, class and reason; queue, threads, ISA, steps. Free it. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_stats_json(penstock_engine* engine,
                                                                    char** out);

/* ==== level 0: parts usable alone =========================================================== */

/* Threads for penstock_cpu_optimizer_step; may be shared by several calling threads. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_pool_create(uint32_t threads,
                                                                     penstock_pool** out);
/* NULL is fine; a second destroy is PENSTOCK_E_STATE. */
PENSTOCK_API penstock_status penstock_pool_destroy(penstock_pool* pool);

/* The update rules, in fp32, one IEEE operation for each one written. PyTorch's hyper-parameters
 * have PyTorch's meaning; docs/numerics.md has the formulas line by line. Deliberate differences:
 * averages take one rounding of 1 - beta, as fp32 beta and 1 - beta do not add up to one and v
 * would drift; decoupled decay is added to the update, as a factor of p would round it away;
 * denormals count as zeros, for speed. G: gradient times gradient_factor, negative with maximize;
 * wd: weight decay; t counts updates from 1; names are those of the arrays. */
typedef int32_t penstock_optimizer;
enum {
  /* Loshchilov, Hutter 2019. m += (1 - beta1)(G - m); v += (1 - beta2)(G^2 - v);
   * p -= lr (m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + wd p).
   * With amsgrad (Reddi and others 2018): v_max = max(v_max, v), in place of v in p. */
  PENSTOCK_ADAMW = 1,
  /* Kingma, Ba 2015. The same with G + wd p for G, and no other decay. */
  PENSTOCK_ADAM = 2,
  /* G += wd p. p -= lr G; or with momentum (Sutskever and others 2013)
   * m = momentum m + (1 - dampening) G, at t = 1 m = G whatever m holds;
   * p -= lr m, with nesterov p -= lr (G + momentum m). */
  PENSTOCK_SGD = 3,
  /* Duchi and others 2011. G += wd p; v += G^2;
   * p -= lr / (1 + (t - 1) lr_decay) G / (sqrt(v) + eps).
   * PyTorch's initial_accumulator_value is what the caller fills v with at first. */
  PENSTOCK_ADAGRAD = 4,
  /* Chen and others 2023; not in PyTorch. p -= lr (sign(m + (1 - beta1)(G - m)) + wd p), where
   * sign(0) = 0; m += (1 - beta2)(G - m). beta2 is usually .99. */
  PENSTOCK_LION = 5
};

typedef struct penstock_optimizer_args {
  uint32_t struct_size;
  penstock_optimizer kind;                    /* default PENSTOCK_ADAMW */
  uint64_t t;                                 /* this update's number, from 1 */
  double lr, beta1, beta2, eps, weight_decay; /* defaults 1e-3, .9, .999, 1e-8, 0 */
  double gradient_factor;                     /* multiplies gradients: clip and scale; default 1 */
  /* From here 0 by default. One that is set and that the rule does not have is refused. */
  double momentum, dampening; /* SGD */
  double lr_decay;            /* ADAGRAD */
  int32_t nesterov;           /* SGD with momentum and no dampening: 1 */
  int32_t amsgrad;            /* ADAMW, ADAM: 1 */
  int32_t maximize;           /* 1: the gradient, but not the decay, counts negatively */
  int32_t gradients_checked;  /* 1: the caller knows them to be finite; saves reading them twice */
  uint64_t seed;              /* of random rounding */
} penstock_optimizer_args;

PENSTOCK_API penstock_status penstock_optimizer_args_init(penstock_optimizer_args* args,
                                                          size_t struct_size);

/* The caller's arrays, [n] each, updated in place but for grad and out. No two may overlap; each is
 * aligned to its elements. The rule's own states only: others are not looked at. They start as
 * zeros (ADAGRAD: see there), and none may be changed between updates.
 * bf16 states halve their bytes: 8 a parameter with ADAMW instead of 12. The update is computed
 * with unrounded new states. m and v_max are stored to the nearest; v is rounded at random, with
 * the right mean, since .999 v would be rounded back to v for ever: a hash of seed, tensor, element
 * and t decides, so results do not depend on threads or on how a tensor is cut over calls.
 * 8-bit states (ADAMW and ADAM without amsgrad) take 2.03 bytes a parameter: m signed, v as codes
 * of sqrt(v), each relative to the largest of its block of 256 elements, both rounded at random
 * (docs/numerics.md). Updates differ from those of exact states by 5 to 14 % (simulated),
 * and may be far too large where gradients in a block differ by many orders of magnitude.
 * first_element is then a multiple of 256.
 * Weights of fewer bits, ADAMW and ADAM without amsgrad: hi with lo8, 24 bits, where states have 8;
 * or hi alone with bf16_weights 1, for any states. They are rounded at random, too. */
typedef struct penstock_optimizer_arrays {
  uint32_t struct_size;
  penstock_dtype grad_dtype; /* f32, f16 or bf16; default f32 */
  penstock_dtype out_dtype;  /* f32, f16 or bf16; default PENSTOCK_DTYPE_NONE: nothing copied out */
  penstock_dtype state_dtype; /* of m, v, v_max: f32, the default, bf16, or PENSTOCK_I8 (m, v) */
  uint64_t n;                 /* at least 1 */
  float* p;                   /* the fp32 weights; or NULL, and their two halves: */
  uint16_t* hi; /* the upper 16 bits, rounded: a bf16 weight for forward and backward */
  uint16_t* lo; /* the rest, a signed 16-bit number: p is (hi << 16) + lo, as bits */
  void* m;      /* ADAMW, ADAM, LION; SGD with momentum */
  void* v;      /* ADAMW, ADAM, ADAGRAD */
  void* v_max;  /* amsgrad */
  const void* grad;
  void* out;              /* the new weights, rounded to nearest even, past the caches; else NULL */
  uint64_t tensor;        /* random rounding: a number of the tensor, */
  uint64_t first_element; /* and where in it these arrays begin, when it is updated in parts */
  /* From here NULL or 0 by default. */
  float* m_scale; /* 8-bit states: [n / 256, rounded up], zeros to begin with */
  float* v_scale; /* the same */
  int8_t* lo8;    /* 8 bits of the rest instead of lo: p is (hi << 16) + (lo8 << 8), as bits */
  int32_t bf16_weights; /* 1: hi alone */
} penstock_optimizer_arrays;

PENSTOCK_API penstock_status penstock_optimizer_arrays_init(penstock_optimizer_arrays* arrays,
                                                            size_t struct_size);

/* One fused update of n elements. *applied becomes 1; or 0, and no byte of any array is changed, if
 * some gradient is infinite or NaN, or times gradient_factor larger than 1.8e19, whose square
 * overflows. pool: NULL computes in the calling thread; the result does not depend on it. Several
 * threads may call this at once, on different arrays. */
PENSTOCK_API PENSTOCK_NODISCARD penstock_status penstock_cpu_optimizer_step(
    const penstock_optimizer_args* args, const penstock_optimizer_arrays* arrays,
    penstock_pool* pool, int32_t* applied);

#ifdef __cplusplus
}
#endif
