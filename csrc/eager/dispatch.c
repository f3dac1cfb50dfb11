/* Dispatch: from a call to its results. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eager/graph_internal.h"

enum { STACK_VALUES = 24 };

/* ---- building a plan ---------------------------------------------------------------------------------------- */

/* What the key said, kept while the flag is let go. */
typedef struct plan_request {
  uint64_t *words;
  size_t word_count;
  tt_hash128 hash;
  tt_storage_spec *specs;
  int64_t *dims; /* of all specs */
  int spec_count;
} plan_request;

static void request_take(const tt_key *k, tt_hash128 hash, plan_request *out) {
  size_t dims = 0;
  for (int i = 0; i < k->storage_count; i++) dims += k->storages[i]->value ? k->storages[i]->value->type.rank : 0;
  *out = (plan_request){
      .words = tt_malloc(k->count * sizeof *k->words),
      .word_count = k->count,
      .hash = hash,
      .specs = tt_calloc((size_t)k->storage_count + 1, sizeof *out->specs),
      .dims = tt_malloc(dims * sizeof(int64_t)),
      .spec_count = k->storage_count,
  };
  memcpy(out->words, k->words, k->count * sizeof *k->words);
  int64_t *next = out->dims;
  for (int i = 0; i < k->storage_count; i++) {
    const tt_storage *s = k->storages[i];
    tt_storage_spec *spec = &out->specs[i];
    *spec = (tt_storage_spec){.storage = k->storages[i], .holds = TT_HOLDS_NOTHING, .nbytes = s->nbytes};
    if (!s->value) continue;
    spec->holds = (tt_holds)s->value->holds;
    spec->type = s->value->type;
    memcpy(next, s->value->type.dims, s->value->type.rank * sizeof *next);
    spec->type.dims = next;
    next += s->value->type.rank;
  }
}

static void request_free(plan_request *r) {
  free(r->words);
  free(r->specs);
  free(r->dims);
}

static bool is_contiguous(const tt_tensor *t) { return !t->storage || t->flags & TT_TENSOR_CONTIGUOUS; }

/* PyTorch's answer would be no news. Its meta kernels are Python, which takes longer than all else. */
static bool needs_no_hint(const tt_call *call) {
  bool known = tt_op_is_known(call->op);
  if (known && call->op->flags & TT_OP_OWN_LAYOUT) return true; /* it has none, or knows less than the row */
  for (int i = 0; i < call->arg_count && known; i++) {
    const tt_arg *a = &call->args[i];
    if (a->kind == TT_ARG_TENSOR) known = is_contiguous(&a->tensor);
    for (int k = 0; a->kind == TT_ARG_TENSORS && k < a->count && known; k++) known = is_contiguous(&a->tensors[k]);
  }
  for (int i = 0; i < call->write_count && known; i++) known = is_contiguous(&call->writes[i]);
  return known;
}

/* The host may refuse that a result is converted for what it is written to. */
static tt_status program_check(tt_program *p, const tt_miss_hook *miss, tt_program **out_program) {
  tt_status refused = p->converts && miss && miss->converts ? miss->converts(miss->context) : TT_OK;
  if (refused) tt_program_free(p);
  else *out_program = p;
  return refused;
}

static tt_status program_make(tt_device *d, const tt_call *call, const tt_miss_hook *miss, const plan_request *r,
                              tt_program **out_program) {
  tt_program *p;
  tt_miss_hint hint = {0};
  uint8_t *memory = NULL; /* of a recalled hint */
  hlo_precision precision = (hlo_precision)call->precision;
  tt_target target = tt_key_is_portable(r->words) ? TT_TARGET_TPU : d->target;
  if (needs_no_hint(call)) {
    tt_status refused = tt_program_build(call, r->specs, r->spec_count, NULL, 0, target, precision, &p);
    if (!refused) return program_check(p, miss, out_program);
    if (call->op->flags & TT_OP_OWN_LAYOUT) return refused;
    tt_status_free(refused); /* PyTorch may have better words for it */
  }
  TT_TRY(tt_hint_get(d, call, r->words, r->word_count, miss, &hint, &memory));
  tt_layout_hint layouts[8];
  for (int i = 0; i < hint.count; i++) layouts[i] = (tt_layout_hint){hint.results[i].rank, hint.results[i].strides};
  tt_status status = tt_program_build(call, r->specs, r->spec_count, layouts, hint.count, target, precision, &p);
  free(memory);
  return status ? status : program_check(p, miss, out_program);
}

/* The call's own program; in a capture with bounded sizes one that has those. */
static tt_status plan_make(tt_device *d, const tt_call *call, const tt_miss_hook *miss, const plan_request *r, tt_plan **out_plan) {
  const tt_bounds *bounds = tt_capture_bounds();
  tt_program *p;
  if (bounds) TT_TRY(tt_program_build_bounded(call, r->specs, r->spec_count, tt_target_without_kernels(d->target),
                                              (hlo_precision)call->precision, bounds, &p));
  else TT_TRY(program_make(d, call, miss, r, &p));
  tt_plan *plan = *out_plan = tt_calloc(1, sizeof *plan);
  plan->program = p;
  plan->runs = p;
  plan->code = &plan->own;
  plan->own = tt_code_for(p, tt_key_excess_precision(r->words));
  plan->weight = strlen(p->function.rest);
  return TT_OK;
}

/* `exact`: with a program of its own. */
static tt_status plan_get(tt_device *d, const tt_call *call, const tt_miss_hook *miss, plan_request *r, bool exact,
                          tt_plan **out_plan) {
  *out_plan = exact ? NULL : tt_family_plan(d, call, r->specs, r->spec_count);
  if (!*out_plan) {
    TT_TRY(plan_make(d, call, miss, r, out_plan));
    if (!exact) tt_family_join(d, call, r->specs, r->spec_count, *out_plan);
  }
  (*out_plan)->hash = r->hash;
  (*out_plan)->words = r->words;
  (*out_plan)->word_count = (uint32_t)r->word_count;
  r->words = NULL;
  return TT_OK;
}

/* ---- running a plan (the dispatch flag is held) ---------------------------------------------------------------- */

/* The arrays of one run; small ones on the stack. */
typedef struct run_state {
  tt_value *few[2 * STACK_VALUES];
  bool few_donate[STACK_VALUES];
  tt_value **inputs, **outputs;
  bool *donate;
  int input_count, output_count;
} run_state;

static void run_begin(run_state *r, const tt_program *p) {
  r->input_count = p->input_count + __builtin_popcount(p->packs);
  r->output_count = p->output_count;
  r->inputs = r->input_count <= STACK_VALUES ? r->few : tt_malloc((size_t)r->input_count * sizeof(tt_value *));
  r->donate = r->input_count <= STACK_VALUES ? r->few_donate : tt_malloc((size_t)r->input_count + 1);
  r->outputs = r->output_count <= STACK_VALUES ? r->few + STACK_VALUES : tt_malloc((size_t)r->output_count * sizeof(tt_value *));
}

static void run_end(run_state *r) {
  if (r->inputs != r->few) free(r->inputs);
  if (r->donate != r->few_donate) free(r->donate);
  if (r->outputs != r->few + STACK_VALUES) free(r->outputs);
}

/* An input may be donated when its storage is about to let go of it and nobody else holds it. A program that tells at
 * the call whether it failed must leave its inputs as they were. */
static void run_mark_donations(tt_device *d, run_state *r, const tt_plan *plan, bool now) {
  const tt_program *p = plan->program;
  memset(r->donate, 0, (size_t)r->input_count);
  if (plan->runs != p) return; /* it works on copies */
  if (now && p->has_check && d->is_cpu) return;
  for (int w = 0; w < p->written_count; w++) {
    int input = p->donated_inputs[w];
    if (input < 0) continue;
    r->donate[input] = tt_value_is_last(r->inputs[input]);
    if (r->donate[input]) tt_count(&d->donated, 1);
  }
}

static tt_status run_gather_inputs(tt_device *d, tt_plan *plan, const tt_call *call, tt_storage *const *storages,
                                   run_state *r, bool *out_now) {
  const tt_program *p = plan->runs;
  *out_now = plan->code->cheap && tt_stream_is_in_order(&d->stream);
  for (int i = 0; i < p->input_count; i++) {
    tt_value *v = r->inputs[i] = storages[p->input_storages[i]]->value;
    tt_value_state state = tt_value_get_state(v);
    if (state == TT_VALUE_FAILED) return tt_value_failure(v);
    if (state == TT_VALUE_PENDING && v->captured)
      return tt_status_make(TT_NOT_IMPLEMENTED, "%s needs a tensor that is being captured by another thread", p->name);
    *out_now &= state == TT_VALUE_READY;
  }
  run_mark_donations(d, r, plan, *out_now);
  int next = p->input_count;
  for (int pack = 0; pack < TT_PACK_COUNT; pack++) {
    if (!(p->packs >> pack & 1)) continue;
    tt_status status = tt_numbers_pack(d, plan, call, storages, (tt_pack)pack, &r->inputs[next]);
    if (status) {
      while (next-- > p->input_count) tt_value_release(r->inputs[next]);
      return status;
    }
    r->donate[next++] = false;
  }
  return TT_OK;
}

static void run_release_packs(const tt_program *p, run_state *r) { /* p: what runs */
  for (int i = p->input_count; i < r->input_count; i++) tt_value_release(r->inputs[i]);
}

/* The input whose memory a written storage's output takes, or null. */
static tt_value *run_donated(const tt_program *p, const run_state *r, int write) {
  int input = p->donated_inputs[write];
  return input >= 0 && input < r->input_count && r->donate[input] ? r->inputs[input] : NULL;
}

/* Bytes that the outputs add: what is written in place takes no new memory. */
static int64_t run_new_bytes(const tt_program *p, const run_state *r) {
  int64_t bytes = 0;
  for (int i = 0; i < p->result_count; i++)
    if (!p->results[i].none && p->results[i].write < 0) bytes += tt_array_bytes(&p->results[i].array);
  for (int w = 0; w < p->written_count; w++)
    if (!run_donated(p, r, w)) bytes += tt_array_bytes(&p->written_types[w]);
  return bytes;
}

static tt_status run_make_outputs(tt_device *d, const tt_program *p, run_state *r) {
  if (d->options.memory_limit) TT_TRY(tt_memory_reserve(d, run_new_bytes(p, r)));
  int next = 0;
  for (int i = 0; i < p->result_count; i++)
    if (!p->results[i].none && p->results[i].write < 0)
      r->outputs[next++] = tt_value_create_result(d, &p->results[i].array, NULL);
  for (int w = 0; w < p->written_count; w++)
    r->outputs[next++] = tt_value_create_result(d, &p->written_types[w], run_donated(p, r, w));
  if (p->has_check) r->outputs[next++] = tt_value_create_result(d, &tt_flag_type, NULL);
  return TT_OK;
}

/* Takes the outputs back after a failure: nothing was donated. */
static void run_drop_outputs(const tt_program *p, run_state *r) {
  int written = r->output_count - p->has_check - p->written_count;
  for (int w = 0; w < p->written_count; w++) {
    tt_value *donated = run_donated(p, r, w), *output = r->outputs[written + w];
    if (donated) tt_value_give_back(donated, output);
  }
  for (int i = 0; i < r->output_count; i++) tt_value_release(r->outputs[i]);
}

/* Everything succeeded: storages take their new values, results are handed out. */
static void run_commit(tt_device *d, const tt_plan *plan, tt_storage *const *storages, run_state *r,
                       tt_new_result *out_results) {
  const tt_program *p = plan->program;
  int next = 0;
  for (int i = 0; i < p->result_count; i++) {
    const tt_result_info *info = &p->results[i];
    out_results[i] = tt_result_of(info);
    if (info->none || info->write >= 0) continue;
    out_results[i].storage = tt_storage_create_result(d, r->outputs[next++]);
  }
  for (int w = 0; w < p->written_count; w++) {
    tt_storage *s = storages[p->written_storages[w]];
    tt_value *old = s->value;
    s->value = r->outputs[next++];
    tt_value_release_held(old);
  }
  if (p->has_check) tt_value_release(r->outputs[next]);
}

static tt_status plan_run(tt_device *d, tt_plan *plan, const tt_call *call, tt_storage *const *storages,
                          tt_new_result *out_results) {
  const tt_program *p = plan->program;
  run_state r;
  bool now;
  run_begin(&r, plan->runs);
  tt_status status = run_gather_inputs(d, plan, call, storages, &r, &now);
  if (!status) {
    status = run_make_outputs(d, p, &r);
    if (!status) {
      tt_task task = {plan->code, r.inputs, r.input_count, r.donate, r.outputs, r.output_count, pthread_self(), 0};
      status = tt_task_launch(d, &task, now);
      if (status) run_drop_outputs(p, &r);
      else run_commit(d, plan, storages, &r, out_results);
    }
    run_release_packs(plan->runs, &r);
  }
  run_end(&r);
  return status;
}

/* ---- the entry ---------------------------------------------------------------------------------------------- */

static tt_status dispatch_blocking(tt_device *d) {
  TT_TRY(tt_stream_drain(d));
  tt_checks_drain(d);
  return tt_device_take_unseen(d, true);
}

/* A plan was found. Flag held. False, and nothing done, if the plan must be compiled first. */
static bool dispatch_plan(tt_device *d, tt_plan *plan, const tt_call *call, tt_new_result *out_results, int capacity,
                          tt_status *out_status) {
  tt_capture *capture = tt_capture_current();
  bool defer = atomic_load_explicit(&d->defer, memory_order_relaxed);
  if (plan->program->result_count > capacity) {
    *out_status = tt_status_make(TT_INTERNAL, "%s gives %d results, room for %d", plan->program->name,
                                 plan->program->result_count, capacity);
    return true;
  }
  if (capture) {
    *out_status = tt_capture_record(capture, plan, call, d->key.storages, out_results);
    return true;
  }
  if (defer) {
    bool frees_later = !tt_device_finished(d, tt_device_submitted(d));
    if (d->options.memory_limit && frees_later) *out_status = tt_region_reserve(d, plan->program);
    if (!*out_status) *out_status = tt_region_record(d, plan, call, d->key.storages, out_results);
    return true;
  }
  if (tt_code_get_state(plan->code) != TT_CODE_READY) return false;
  if (d->region.node_count) {
    *out_status = tt_region_flush(d, d->region.node_count, TT_FLUSH_MODE);
    if (*out_status) return true;
  }
  *out_status = plan_run(d, plan, call, d->key.storages, out_results);
  return true;
}

/* Does the call need a plan that runs its own program, where this one runs its family's? Flag held. */
static bool needs_own_program(tt_device *d, tt_plan *plan) {
  bool deferred = atomic_load_explicit(&d->defer, memory_order_relaxed);
  return plan->runs != plan->program && (tt_capture_current() || tt_plan_leaves_family(plan, deferred));
}

/* Builds the plan of a new key, or one with its own program, unless another thread has done so meanwhile. The flag is not
 * held. */
static tt_status dispatch_build(tt_device *d, const tt_call *call, const tt_miss_hook *miss, bool exact, plan_request *request) {
  tt_plan *plan;
  TT_TRY(plan_get(d, call, miss, request, exact || tt_capture_current(), &plan));
  tt_device_enter(d);
  tt_plan *other = tt_plan_table_find(&d->plans, plan->hash, plan->words, plan->word_count);
  bool replaces = other && exact && other->runs != other->program;
  if (!other) tt_plan_table_add(&d->plans, plan);
  if (replaces) tt_plan_table_replace(&d->plans, other, plan);
  tt_device_leave(d);
  if (other && !replaces) tt_plan_free(plan);
  return TT_OK;
}

tt_status tt_dispatch(tt_device *d, const tt_call *call, const tt_miss_hook *miss, tt_new_result *out_results, int capacity,
                      int *out_count) {
  *out_count = 0;
  TT_TRY(tt_device_usable(d));
  if (call->op->fits) TT_TRY(tt_call_check_numbers(call));
  bool hit = true;
  tt_status status = TT_OK;
  for (;;) {
    TT_TRY(tt_stream_wait_for_room(d));
    tt_device_enter(d);
    status = tt_device_usable(d); /* it may have ended meanwhile */
    if (status) {
      tt_device_leave(d);
      break;
    }
    tt_count(&d->requests, hit);
    tt_key_build(d, call, &d->key);
    tt_hash128 hash = tt_hash_words(d->key.words, d->key.count);
    tt_plan *plan = tt_plan_table_find(&d->plans, hash, d->key.words, (uint32_t)d->key.count);
    bool exact = plan && needs_own_program(d, plan);
    if (plan && !exact) {
      bool done = dispatch_plan(d, plan, call, out_results, capacity, &status);
      tt_count(&d->hits, done && hit);
      if (!done) tt_programs_make_room(d);
      bool wait = status && tt_status_get_code(status) == TT_OUT_OF_MEMORY &&
                  !tt_device_finished(d, tt_device_submitted(d));
      tt_device_leave(d);
      if (wait) { /* what is queued holds memory that it will give back */
        tt_status_free(status);
        status = tt_stream_drain(d);
        hit = false;
        if (!status) continue;
      }
      if (!done) status = tt_code_require(d, plan->code, tt_program_source(plan->runs));
      if (!done && status && plan->runs != plan->program) { /* the family's program is refused: the call's own may be taken */
        tt_status_free(status);
        status = TT_OK;
        tt_device_enter(d);
        plan->debt = INFINITY;
        tt_device_leave(d);
      }
      if (done && !status) *out_count = plan->program->result_count;
      if (done || status) break;
    } else { /* build without the flag */
      plan_request request;
      request_take(&d->key, hash, &request);
      tt_device_leave(d);
      status = dispatch_build(d, call, miss, exact, &request);
      request_free(&request);
      if (status) break;
    }
    hit = false; /* look again: the storages may hold something else by now */
  }
  if (!status && atomic_load_explicit(&d->launch_blocking, memory_order_relaxed)) {
    status = dispatch_blocking(d);
    if (status) { /* the caller must own nothing after a failure */
      for (int i = 0; i < *out_count; i++) tt_storage_destroy(out_results[i].storage);
      *out_count = 0;
    }
  }
  return status;
}
