/* The mock plugin's reading of a StableHLO program: the signature of @main. */
#ifndef TT_PJRT_MOCK_PROGRAM_H
#define TT_PJRT_MOCK_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { MOCK_MAX_RANK = 64, MOCK_MAX_VALUES = 2048 };

typedef struct mock_type {
  int pjrt_type;
  int rank;
  size_t bytes;
  int64_t dims[MOCK_MAX_RANK];
} mock_type;

typedef struct mock_value {
  mock_type type;
  int link; /* of a parameter: the result that may reuse it; of a result: the parameter that is copied; or -1 */
} mock_value;

typedef struct mock_program {
  int parameter_count, result_count;
  mock_value *parameters, *results; /* from `allocate` */
} mock_program;

/* Null on success, else what is wrong; the arrays made so far are then in *out for the caller to free. */
const char *mock_program_parse(const char *text, size_t size, void *(*allocate)(size_t), mock_program *out);

#endif
