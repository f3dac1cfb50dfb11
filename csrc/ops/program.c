/* From a call to a program: storages become parameters, the row is lowered, what was written becomes outputs. */
#include "ops/program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/lanes.h"
#include "ops/lower_state.h"

/* ---- the storages of a call --------------------------------------------------------------------------------- */

/* An open-addressing set beside the list: optimizers pass thousands of tensors. */
typedef struct storage_set {
  tt_storage **list, **slots;
  size_t slot_count; /* a power of two, or 0: few, search the list */
  int count, capacity;
} storage_set;

enum { FEW_STORAGES = 16 };

static bool set_contains(storage_set *set, tt_storage *storage) {
  if (set->slot_count == 0) {
    for (int i = 0; i < set->count; i++)
      if (set->list[i] == storage) return true;
    return false;
  }
  size_t at = (size_t)(((uintptr_t)storage >> 4) * 0x9E3779B97F4A7C15u >> 20);
  for (;; at++) {
    tt_storage **slot = &set->slots[at & (set->slot_count - 1)];
    if (*slot == storage) return true;
    if (*slot) continue;
    *slot = storage;
    return false;
  }
}

static void set_add(storage_set *set, const tt_tensor *t) {
  if (t->storage && set->count < set->capacity && !set_contains(set, t->storage)) set->list[set->count++] = t->storage;
}

int tt_call_storages(const tt_call *call, tt_storage **out, int capacity) {
  storage_set set = {.list = out, .capacity = capacity};
  size_t most = (size_t)call->write_count + (size_t)call->arg_count;
  for (int i = 0; i < call->arg_count; i++)
    if (call->args[i].kind == TT_ARG_TENSORS) most += (size_t)call->args[i].count;
  if (most > FEW_STORAGES) {
    for (set.slot_count = 64; set.slot_count < 2 * most;) set.slot_count *= 2;
    set.slots = tt_calloc(set.slot_count, sizeof *set.slots);
  }
  for (int i = 0; i < call->arg_count; i++) {
    const tt_arg *a = &call->args[i];
    if (a->kind == TT_ARG_TENSOR) set_add(&set, &a->tensor);
    for (int k = 0; a->kind == TT_ARG_TENSORS && k < a->count; k++) set_add(&set, &a->tensors[k]);
  }
  for (int i = 0; i < call->write_count; i++) set_add(&set, &call->writes[i]);
  free(set.slots);
  return set.count;
}

/* ---- runtime numbers ---------------------------------------------------------------------------------------- */

static bool is_simple(double x) { return (x == 0 && !signbit(x)) || x == 1 || x == -1; }

bool tt_number_is_baked(const tt_op *op, int arg, const tt_number *n) {
  uint32_t statics = op->static_numbers;
  const tt_op *each = op->each ? tt_op_find(op->each) : NULL;
  if (each) statics |= each->static_numbers;
  if (arg < 32 && statics >> arg & 1) return true;
  if (n->category != TT_NUMBER_PYTHON) return false; /* read from a tensor: likely another one at the next call */
  if (tt_dtype_is_integral((tt_dtype)n->dtype)) return n->i >= -1 && n->i <= 1;
  return is_simple(n->re) && (!tt_dtype_is_complex((tt_dtype)n->dtype) || (n->im == 0 && !signbit(n->im)));
}

static int number_add(tt_numbers *numbers, tt_number_source source) {
  numbers->sources[numbers->count] = source;
  return numbers->count++;
}

static int number_count(const tt_arg *a) {
  return a->kind == TT_ARG_NUMBER ? 1 : a->kind == TT_ARG_NUMBERS ? a->count : 0;
}

static void enumerate_arg(const tt_call *call, int arg, tt_numbers *numbers, tt_arena *arena) {
  const tt_arg *a = &call->args[arg];
  bool is_list = a->kind == TT_ARG_NUMBERS;
  int count = number_count(a), *of = tt_arena_alloc(arena, sizeof *of * (size_t)count);
  for (int k = 0; k < count; k++) {
    tt_number_source source = {is_list ? TT_FROM_LIST : TT_FROM_ARG, (int16_t)arg, (int16_t)k};
    bool baked = tt_number_is_baked(call->op, arg, is_list ? &a->numbers[k] : &a->number);
    of[k] = baked ? -1 : number_add(numbers, source);
  }
  numbers->of_arg[arg] = of;
}

/* The order depends on the call and the specs alone, never on the lowering. */
static tt_numbers numbers_enumerate(const tt_call *call, const tt_storage_spec *specs, int spec_count, int size_count,
                                    tt_arena *arena) {
  tt_numbers numbers = {.seed = -1, .offset = -1};
  size_t most = (size_t)spec_count + (size_t)size_count + 2;
  for (int i = 0; i < call->arg_count; i++) most += (size_t)number_count(&call->args[i]);
  numbers.sources = tt_arena_alloc(arena, sizeof *numbers.sources * most);
  numbers.of_arg = tt_arena_alloc(arena, sizeof *numbers.of_arg * (size_t)(call->arg_count + 1));
  numbers.of_splat = tt_arena_alloc(arena, sizeof *numbers.of_splat * (size_t)(spec_count + 1));
  for (int i = 0; i < call->arg_count; i++) enumerate_arg(call, i, &numbers, arena);
  for (int i = 0; i < spec_count; i++) {
    bool is_splat = specs[i].holds == TT_HOLDS_SPLAT;
    numbers.of_splat[i] = is_splat ? number_add(&numbers, (tt_number_source){TT_FROM_SPLAT, 0, (int16_t)i}) : -1;
  }
  int last = call->arg_count - 1;
  if (last >= 0 && call->args[last].kind == TT_ARG_RNG) {
    numbers.seed = number_add(&numbers, (tt_number_source){TT_FROM_RNG_SEED, (int16_t)last, 0});
    numbers.offset = number_add(&numbers, (tt_number_source){TT_FROM_RNG_OFFSET, (int16_t)last, 0});
  }
  numbers.sizes = numbers.count;
  for (int i = 0; i < size_count; i++) number_add(&numbers, (tt_number_source){TT_FROM_SIZE, 0, (int16_t)i});
  return numbers;
}

/* ---- parameters --------------------------------------------------------------------------------------------- */

tt_site *tt_site_find(const tt_lower *l, const tt_storage *storage) {
  tt_lower_state *s = l->state;
  for (int i = 0; i < s->site_count; i++) {
    int at = (s->site_found + i) % s->site_count;
    if (s->sites[at].spec->storage == storage) return &s->sites[s->site_found = at];
  }
  hlo_fail(l->b, TT_INTERNAL, "a tensor's storage is not among the program's");
  return NULL;
}

static bool has_pack(const tt_lower_state *s, int from) {
  for (int p = from; p < TT_PACK_COUNT; p++)
    if (!hlo_is_none(s->packs[p])) return true;
  return false;
}

hlo_value tt_site_array(tt_lower *l, tt_site *site) {
  tt_lower_state *s = l->state;
  const tt_array_type *t = &site->spec->type;
  if (!hlo_is_none(site->before)) return site->before;
  if (site->spec->holds == TT_HOLDS_SPLAT)
    return site->before = hlo_broadcast_to(l->b, tt_splat_number(l, site), t->rank, t->dims);
  s->out_of_order = s->out_of_order || has_pack(s, 0);
  site->input = s->input_count;
  s->inputs[s->input_count++] = (int)(site - s->sites);
  return site->before = hlo_param(l->b, hlo_type_make(l->b, (tt_dtype)t->dtype, t->rank, t->dims), NULL);
}

tt_array_type tt_array_type_keep(tt_arena *keep, const hlo_type *type) {
  return (tt_array_type){(uint8_t)type->dtype, (uint8_t)type->rank,
                         tt_arena_copy(keep, type->bounds, sizeof *type->bounds * (size_t)type->rank)};
}

tt_dtype tt_pack_dtype(tt_pack pack) {
  static const tt_dtype dtypes[TT_PACK_COUNT] = {TT_F32, TT_F64, TT_I64, TT_C64, TT_C128};
  return dtypes[pack];
}

static hlo_value pack_param(tt_lower *l, tt_pack pack) {
  tt_lower_state *s = l->state;
  if (!hlo_is_none(s->packs[pack])) return s->packs[pack];
  int64_t count = s->numbers->count;
  s->out_of_order = s->out_of_order || has_pack(s, (int)pack + 1);
  return s->packs[pack] = hlo_param(l->b, hlo_type_make(l->b, tt_pack_dtype(pack), count > 1, &count), NULL);
}

hlo_value tt_pack_number(tt_lower *l, tt_pack pack, int ordinal) {
  hlo_value all = pack_param(l, pack);
  if (l->state->numbers->count == 1) return all;
  return hlo_reshape(l->b, hlo_slice_dim(l->b, all, 0, ordinal, ordinal + 1, 1), 0, NULL);
}

static hlo_value size_number(hlo_builder *b, void *context, int symbol) {
  tt_lower *l = context;
  (void)b;
  return tt_pack_number(l, TT_PACK_I64, l->state->numbers->sizes + symbol);
}

/* ---- one lowering ------------------------------------------------------------------------------------------- */

typedef struct build { /* what stays the same while a call is lowered, maybe twice */
  const tt_call *call;
  const tt_storage_spec *specs;
  int spec_count;
  const tt_layout_hint *hints;
  int hint_count;
  tt_target target;
  hlo_precision precision;
  const tt_bounds *bounds; /* null: all sizes are known */
  tt_numbers numbers;
  tt_arena *scratch;
  tt_program *program;
} build;

/* The parameters of the lowering before, in main's order. */
static void preset_params(tt_lower *l, const tt_lower_state *before) {
  for (int i = 0; i < before->input_count; i++) tt_site_array(l, &l->state->sites[before->inputs[i]]);
  for (int p = 0; p < TT_PACK_COUNT; p++)
    if (!hlo_is_none(before->packs[p])) pack_param(l, (tt_pack)p);
}

static void state_init(tt_lower_state *s, const build *u) {
  size_t sites = (size_t)u->spec_count + 1;
  *s = (tt_lower_state){.call = u->call, .args = u->call->args, .member = -1, .numbers = &u->numbers, .hints = u->hints,
                        .hint_count = u->hint_count, .keep = &u->program->arena, .site_count = u->spec_count};
  s->sites = tt_arena_alloc(u->scratch, sizeof *s->sites * sites);
  s->inputs = tt_arena_alloc(u->scratch, sizeof *s->inputs * sites);
  s->written = tt_arena_alloc(u->scratch, sizeof *s->written * sites);
  for (int i = 0; i < u->spec_count; i++) s->sites[i] = (tt_site){.spec = &u->specs[i], .input = -1};
}

static void state_free(tt_lower_state *s) {
  free(s->results);
  free(s->checks);
  free(s->check_infos);
}

static hlo_builder *lower_call(const build *u, tt_lower_state *s, const tt_lower_state *before) {
  hlo_builder *b = hlo_builder_create(u->scratch, "main", true);
  hlo_builder_set_context(b, tt_arena_printf(u->scratch, "aten::%s", u->call->op->name));
  bool multiplies = u->call->op->flags & (TT_OP_MATMUL | TT_OP_CONV);
  hlo_builder_set_precision(b, multiplies ? u->precision : HLO_PRECISION_NONE);
  if (u->target & TT_TARGET_EMULATE_MXU) hlo_builder_emulate_matrix_unit(b);
  if (u->call->op->each && tt_target_has_kernels(u->target)) hlo_builder_trace(b);
  tt_lower *l = tt_arena_alloc(u->scratch, sizeof *l);
  *l = (tt_lower){.b = b, .op = u->call->op, .default_dtype = u->call->default_dtype, .dtype = u->call->default_dtype,
                  .result_dtype = u->call->default_dtype, .is_cpu = u->target & TT_TARGET_CPU,
                  .has_kernels = tt_target_has_kernels(u->target), .has_lapack = tt_target_has_lapack(u->target),
                  .emulates_mxu = u->target & TT_TARGET_EMULATE_MXU, .state = s};
  if (u->bounds) hlo_builder_set_symbols(b, u->bounds->count, u->bounds->bounds, size_number, l);
  state_init(s, u);
  if (before) preset_params(l, before);
  tt_lower_row(l);
  if (!hlo_failed(b) && s->result_count < u->call->write_count)
    hlo_fail(b, TT_INTERNAL, "the lowering made %d results where %d are to be written", s->result_count,
             u->call->write_count);
  return b;
}

/* ---- the program's description ------------------------------------------------------------------------------ */

const tt_array_type tt_flag_type = {TT_I64, 1, (const int64_t[]){TT_FLAG_SIZE}};
hlo_value tt_flag_none(hlo_builder *b) { return hlo_constant_i64s(b, TT_FLAG_SIZE, (const int64_t[TT_FLAG_SIZE]){0}); }

/* What the flag is if this check fails. */
static hlo_value failed_flag(hlo_builder *b, const tt_lowered_check *c, int number) {
  if (hlo_is_none(c->value)) return hlo_constant_i64s(b, TT_FLAG_SIZE, (const int64_t[]){number, 0, 0});
  const int64_t one = 1;
  hlo_value parts[TT_FLAG_SIZE] = {hlo_scalar_i64(b, TT_I64, number), c->value, c->position};
  if (hlo_is_none(c->position)) parts[2] = hlo_scalar_i64(b, TT_I64, 0);
  for (int i = 0; i < TT_FLAG_SIZE; i++) parts[i] = hlo_reshape(b, parts[i], 1, &one);
  return hlo_concatenate(b, TT_FLAG_SIZE, parts, 0);
}

/* That of the first check that failed. */
static hlo_value flag_value(hlo_builder *b, const tt_lower_state *s) {
  hlo_value flag = tt_flag_none(b);
  for (int i = s->check_count - 1; i >= 0; i--)
    flag = hlo_select(b, s->checks[i].ok, flag, failed_flag(b, &s->checks[i], i + 1));
  return flag;
}

/* The input whose memory the new array may take, where their types agree, or -1. */
static int donated_input(const tt_site *site) {
  return site->input >= 0 && hlo_type_equal(site->before.type, site->after.type) ? site->input : -1;
}

static void describe_writes(const build *u, const tt_lower_state *s, hlo_value *outputs) {
  tt_program *p = u->program;
  size_t count = (size_t)s->written_count;
  int *donated = tt_arena_alloc(&p->arena, sizeof *donated * count);
  p->written_count = s->written_count;
  p->written_storages = tt_arena_copy(&p->arena, s->written, sizeof *s->written * count);
  p->donated_inputs = donated;
  for (int i = 0; i < s->written_count; i++) {
    const tt_site *site = &s->sites[s->written[i]];
    donated[i] = donated_input(site);
    outputs[p->output_count++] = site->after;
  }
}

static void describe_results(const build *u, const tt_lower_state *s, hlo_value *outputs) {
  tt_program *p = u->program;
  tt_result_info *results = tt_arena_alloc(&p->arena, sizeof *results * (size_t)s->result_count);
  p->result_count = s->result_count;
  p->results = results;
  for (int i = 0; i < s->result_count; i++) {
    results[i] = s->results[i].info;
    if (!results[i].none && results[i].write < 0) outputs[p->output_count++] = s->results[i].array;
  }
}

static void describe_symbols(tt_program *p, const hlo_value *outputs) {
  tt_array_type *types = tt_arena_alloc(&p->arena, sizeof *types * (size_t)p->output_count);
  for (int i = 0; i < p->output_count; i++) {
    const hlo_type *t = outputs[i].type;
    int64_t *dims = tt_arena_copy(&p->arena, t->dims, sizeof *dims * (size_t)t->rank);
    types[i] = (tt_array_type){(uint8_t)t->dtype, (uint8_t)t->rank, dims};
  }
  p->symbolic_outputs = types;
}

static void describe_types(tt_program *p, const tt_lower_state *s, const hlo_value *outputs) {
  tt_array_type *inputs = tt_arena_alloc(&p->arena, sizeof *inputs * (size_t)p->input_count);
  tt_array_type *types = tt_arena_alloc(&p->arena, sizeof *types * (size_t)p->output_count);
  for (int i = 0; i < p->input_count; i++) inputs[i] = tt_array_type_keep(&p->arena, s->sites[s->inputs[i]].before.type);
  for (int i = 0; i < p->output_count; i++) types[i] = tt_array_type_keep(&p->arena, outputs[i].type);
  p->input_types = inputs;
  p->output_types = types;
  p->written_types = types + p->output_count - p->has_check - p->written_count;
}

/* Foreach rows, where the plugin has our kernels. */
static void describe_lanes(const hlo_builder *b, tt_program *p, const tt_lower_state *s, const hlo_value *outputs) {
  int count;
  const hlo_traced *trace = hlo_builder_traced(b, &count);
  if (!count || p->has_check || (p->packs & ~(1 << TT_PACK_F32))) return;
  tt_arena scratch = TT_ARENA_INIT;
  hlo_value *inputs = tt_arena_alloc(&scratch, sizeof *inputs * (size_t)(p->input_count + 1));
  for (int i = 0; i < p->input_count; i++) inputs[i] = s->sites[s->inputs[i]].before;
  hlo_value pack = p->packs ? s->packs[TT_PACK_F32] : HLO_NONE;
  p->lanes = tt_lanes_extract(&p->arena, trace, count, p->input_count, inputs, pack, p->output_count, outputs);
  tt_arena_free(&scratch);
}

static void describe(hlo_builder *b, const build *u, const tt_lower_state *s) {
  tt_program *p = u->program;
  p->input_count = s->input_count;
  p->input_storages = tt_arena_copy(&p->arena, s->inputs, sizeof *s->inputs * (size_t)s->input_count);
  p->number_count = u->numbers.count;
  p->numbers = tt_arena_copy(&p->arena, u->numbers.sources, sizeof *p->numbers * (size_t)u->numbers.count);
  for (int i = 0; i < TT_PACK_COUNT; i++) p->packs |= (uint8_t)(!hlo_is_none(s->packs[i]) << i);
  hlo_value *outputs = tt_arena_alloc(u->scratch, sizeof *outputs * (size_t)(s->result_count + s->written_count + 1));
  describe_results(u, s, outputs);
  describe_writes(u, s, outputs);
  p->has_check = s->check_count > 0;
  p->check_count = s->check_count;
  p->checks = tt_arena_copy(&p->arena, s->check_infos, sizeof *s->check_infos * (size_t)s->check_count);
  if (p->has_check) outputs[p->output_count++] = flag_value(b, s);
  describe_types(p, s, outputs);
  if (u->bounds) describe_symbols(p, outputs);
  describe_lanes(b, p, s, outputs);
  hlo_return(b, p->output_count, outputs);
}

static tt_status finish(hlo_builder *b, const build *u, const tt_lower_state *s) {
  hlo_function f;
  tt_program *p = u->program;
  TT_TRY(hlo_builder_finish_function(b, &f));
  const char **params = tt_arena_alloc(&p->arena, sizeof *params * (size_t)f.param_count);
  for (int i = 0; i < f.param_count; i++) params[i] = tt_arena_copy(&p->arena, f.params[i], strlen(f.params[i]) + 1);
  p->function = (hlo_function){f.param_count, params, tt_arena_copy(&p->arena, f.rest, strlen(f.rest) + 1)};
  p->name = tt_arena_printf(&p->arena, "aten::%s", u->call->op->name);
  p->cost = hlo_builder_cost(b);
  p->is_pointwise = tt_op_is_pointwise(u->call->op);
  p->has_kernels = s->has_kernels;
  p->converts = s->converts;
  return TT_OK;
}

static tt_status program_build(build *u, tt_program **out_program) {
  tt_arena scratch = TT_ARENA_INIT;
  tt_lower_state first = {0}, second = {0}, *s = &first;
  *out_program = NULL;
  u->scratch = &scratch;
  u->program = tt_calloc(1, sizeof *u->program);
  u->numbers = numbers_enumerate(u->call, u->specs, u->spec_count, u->bounds ? u->bounds->count : 0, &scratch);
  hlo_builder *b = lower_call(u, s, NULL);
  if (!hlo_failed(b) && s->out_of_order) { /* what is read is known only now: lower again, all parameters first */
    hlo_builder_destroy(b);
    b = lower_call(u, s = &second, &first);
  }
  if (!hlo_failed(b)) describe(b, u, s);
  tt_status status = finish(b, u, s);
  hlo_builder_destroy(b);
  state_free(&first);
  state_free(&second);
  tt_arena_free(&scratch);
  if (status) tt_program_free(u->program);
  else *out_program = u->program;
  return status;
}

tt_status tt_program_build(const tt_call *call, const tt_storage_spec *specs, int spec_count,
                           const tt_layout_hint *hints, int hint_count, tt_target target, hlo_precision precision,
                           tt_program **out_program) {
  return program_build(&(build){.call = call, .specs = specs, .spec_count = spec_count, .hints = hints,
                                .hint_count = hint_count, .target = target, .precision = precision},
                       out_program);
}

tt_status tt_program_build_bounded(const tt_call *call, const tt_storage_spec *specs, int spec_count, tt_target target,
                                   hlo_precision precision, const tt_bounds *bounds, tt_program **out_program) {
  return program_build(&(build){.call = call, .specs = specs, .spec_count = spec_count, .target = target,
                                .precision = precision, .bounds = bounds},
                       out_program);
}

void tt_program_free(tt_program *p) {
  if (!p) return;
  tt_arena_free(&p->arena);
  free(p);
}
