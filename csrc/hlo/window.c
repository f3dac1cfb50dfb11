/* Windows: reduce_window and select_and_scatter. */
#include <inttypes.h>

#include "hlo/hlo_internal.h"

static int64_t at(const int64_t *values, int i, int64_t fallback) { return values ? values[i] : fallback; }

int64_t hlo_window_count(int64_t size, int64_t window, int64_t stride, int64_t base_dilation, int64_t window_dilation,
                         int64_t low, int64_t high) {
  int64_t dilated = size ? (size - 1) * base_dilation + 1 : 0, padded = dilated + low + high;
  int64_t reach = window ? (window - 1) * window_dilation + 1 : 0;
  return padded <= 0 || reach > padded ? 0 : (padded - reach) / stride + 1;
}

/* The dims of the result; also the number of elements of a window. False on failure. */
static bool window_dims(hlo_builder *b, const char *name, hlo_value x, const hlo_window *w, int64_t *out_dims,
                        double *out_window_numel) {
  *out_window_numel = 1;
  for (int i = 0; i < x.type->rank; i++) {
    int64_t size = at(w->size, i, 1), stride = at(w->stride, i, 1), base = at(w->base_dilation, i, 1),
            dilation = at(w->window_dilation, i, 1);
    if (size < 1 || stride < 1 || base < 1 || dilation < 1) {
      hlo_op_fail(b, name,
                  "sizes, strides and dilations must be positive in dimension %d: %" PRId64 ", %" PRId64 ", %" PRId64
                  ", %" PRId64,
                  i, size, stride, base, dilation);
      return false;
    }
    out_dims[i] =
        hlo_window_count(x.type->dims[i], size, stride, base, dilation, at(w->pad_low, i, 0), at(w->pad_high, i, 0));
    *out_window_numel *= (double)size;
  }
  return true;
}

static const char *window_text(hlo_builder *b, int rank, const hlo_window *w, bool dilations) {
  int64_t ones[HLO_MAX_RANK];
  for (int i = 0; i < rank; i++) ones[i] = 1;
  tt_strbuf s = TT_STRBUF_INIT;
  tt_strbuf_printf(&s, "window_dimensions = %s", hlo_array_text(b, rank, w->size ? w->size : ones));
  if (w->stride) tt_strbuf_printf(&s, ", window_strides = %s", hlo_array_text(b, rank, w->stride));
  if (dilations && w->base_dilation)
    tt_strbuf_printf(&s, ", base_dilations = %s", hlo_array_text(b, rank, w->base_dilation));
  if (dilations && w->window_dilation) {
    tt_strbuf_printf(&s, ", window_dilations = %s", hlo_array_text(b, rank, w->window_dilation));
  }
  if (w->pad_low || w->pad_high)
    tt_strbuf_printf(&s, ", padding = %s", hlo_pairs_text(b, rank, w->pad_low, w->pad_high));
  return hlo_take_text(b, &s);
}

/* Windows may only lie along dimensions whose size is known. */
static bool check_symbolic(hlo_builder *b, const char *name, hlo_value x, const hlo_window *w) {
  for (int i = 0; i < x.type->rank; i++) {
    bool none = at(w->size, i, 1) == 1 && at(w->stride, i, 1) == 1 && at(w->base_dilation, i, 1) == 1 &&
                !at(w->pad_low, i, 0) && !at(w->pad_high, i, 0);
    if (!none && x.type->dynamic >> i & 1) return hlo_check_static(b, name, x);
  }
  return true;
}

void hlo_reduce_window_variadic(hlo_builder *b, int n, const hlo_value *inputs, const hlo_value *inits,
                                const hlo_window *window, hlo_body body, void *context, hlo_value *out) {
  static const char name[] = "stablehlo.reduce_window";
  int64_t dims[HLO_MAX_RANK];
  double window_numel;
  if (!hlo_check_inits(b, name, n, inputs, inits) || !check_symbolic(b, name, inputs[0], window) ||
      !window_dims(b, name, inputs[0], window, dims, &window_numel)) {
    hlo_fill_none(b, n, out);
    return;
  }
  const hlo_type *in = inputs[0].type, *shape = hlo_type_make(b, in->dtype, in->rank, dims);
  hlo_emit_reduction(b, name, n, inputs, inits, window_text(b, in->rank, window, true), shape,
                     hlo_type_work(shape) * window_numel, body, context, out);
}

hlo_value hlo_reduce_window(hlo_builder *b, hlo_value x, hlo_value init, const hlo_window *window, hlo_reducer r) {
  hlo_value out;
  hlo_reduce_window_variadic(b, 1, &x, &init, window, hlo_reducer_body, &r, &out);
  return out;
}

static void select_body(hlo_builder *b, void *context, const hlo_value *arguments, hlo_value *out) {
  out[0] = hlo_compare(b, *(const hlo_cmp *)context, arguments[0], arguments[1]);
}

hlo_value hlo_select_and_scatter(hlo_builder *b, hlo_value x, hlo_value source, hlo_value init,
                                 const hlo_window *window, hlo_cmp select) {
  static const char name[] = "stablehlo.select_and_scatter";
  int64_t dims[HLO_MAX_RANK];
  double window_numel;
  if (!hlo_check_inits(b, name, 1, &x, &init) || !hlo_check_operands(b, name, 1, &source) ||
      !hlo_check_static(b, name, x) || !window_dims(b, name, x, window, dims, &window_numel)) {
    return hlo_none(b);
  }
  for (int i = 0; i < x.type->rank; i++) {
    if (at(window->base_dilation, i, 1) == 1 && at(window->window_dilation, i, 1) == 1) continue;
    return hlo_op_fail(b, name, "takes no dilation");
  }
  const hlo_type *expected = hlo_type_make(b, x.type->dtype, x.type->rank, dims);
  if (!hlo_type_equal(source.type, expected)) {
    return hlo_op_fail(b, name, "the source must be %s, got %s", hlo_type_text(b, expected),
                       hlo_type_text(b, source.type));
  }
  const hlo_type *scalars[2] = {init.type, init.type}, *pred = hlo_type_make(b, TT_BOOL, 0, NULL);
  hlo_reducer add = HLO_REDUCE_ADD;
  hlo_region regions[2] = {{2, scalars, 1, &pred, select_body, &select},
                           {2, scalars, 1, scalars, hlo_reducer_body, &add}};
  hlo_op op = {.name = name,
               .operand_count = 3,
               .operands = (hlo_value[]){x, source, init},
               .attributes = window_text(b, x.type->rank, window, false),
               .result_count = 1,
               .result_types = &x.type,
               .region_count = 2,
               .regions = regions,
               .closed_regions = true,
               .region_repeats = hlo_type_work(expected) * window_numel};
  hlo_value out;
  hlo_op_emit(b, &op, &out);
  return out;
}
