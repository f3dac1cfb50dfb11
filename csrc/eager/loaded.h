/* StableHLO from elsewhere, run as it is: modules that were exported, by this program or another one. */
#ifndef TT_EAGER_LOADED_H
#define TT_EAGER_LOADED_H

#include "eager/eager.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tt_loaded tt_loaded;

/* Compiles the text of a module. What the plugin refuses is TT_INVALID_ARGUMENT or its own code, with its words. */
tt_status tt_loaded_create(tt_device *d, const char *text, size_t size, tt_loaded **out_loaded) TT_MUST_USE;
int tt_loaded_result_count(const tt_loaded *l);

typedef struct tt_loaded_result { /* a new row-major array; the caller owns the storage */
  tt_storage *storage;
  tt_dtype dtype;
  int rank;
  int64_t sizes[TT_MAX_RANK];
} tt_loaded_result;
/* Waits for the inputs, and for the results. Inputs must hold arrays of main's types, which the caller has checked.
 * On failure nothing is owned. */
tt_status tt_loaded_run(tt_loaded *l, int input_count, tt_storage *const *inputs, tt_loaded_result *out_results) TT_MUST_USE;
void tt_loaded_destroy(tt_loaded *l);

#ifdef __cplusplus
}
#endif
#endif
