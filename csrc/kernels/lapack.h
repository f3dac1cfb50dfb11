/* LAPACK as this process has it: routines are looked up by name when a device opens, nothing is linked. The Fortran
 * calling convention: every argument by address, matrices by columns, 32-bit integers, the length of each text argument
 * behind all others.
 *
 * Kernels over LAPACK take matrices by columns: a row-major array [b, n, m] holds b matrices of m rows and n columns.
 *
 * To add a routine: a line in TT_LAPACK_ROUTINES, a kernel that calls it (kernels/lapack_solve.c shows how), and the kernel's
 * line in TT_KERNELS. */
#ifndef TT_KERNELS_LAPACK_H
#define TT_KERNELS_LAPACK_H

#include <stdbool.h>

#include "base/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Our name; the routine's name for real matrices and for complex ones, without the letter of the type. */
#define TT_LAPACK_ROUTINES(X) \
  X(getrf, getrf, getrf)      \
  X(getrs, getrs, getrs)      \
  X(sytrf, sytrf, sytrf)      \
  X(hetrf, sytrf, hetrf)      \
  X(sytrs, sytrs, sytrs)      \
  X(hetrs, sytrs, hetrs)      \
  X(geqrf, geqrf, geqrf)      \
  X(orgqr, orgqr, ungqr)      \
  X(ormqr, ormqr, unmqr)      \
  X(syevd, syevd, heevd)      \
  X(gesdd, gesdd, gesdd)      \
  X(geev, geev, geev)

typedef enum tt_lapack_id {
#define TT_X(name, real, complex) TT_LAPACK_##name,
  TT_LAPACK_ROUTINES(TT_X)
#undef TT_X
  TT_LAPACK_COUNT
} tt_lapack_id;

typedef void (*tt_routine)(void); /* cast to what the routine is before it is called */
/* Gives the function of this name ("sgetrf_"), or null. */
typedef tt_routine (*tt_lapack_lookup)(const char *name);

/* Looks all routines up, unless an earlier call has found them; a null lookup searches what is loaded, then the system's
 * libraries. False: one is missing, and none can be used. */
bool tt_lapack_load(tt_lapack_lookup lookup);
/* The dtypes that LAPACK knows. */
static inline bool tt_lapack_takes(tt_dtype t) { return t == TT_F32 || t == TT_F64 || t == TT_C64 || t == TT_C128; }
/* The routine for matrices of such a dtype; null for another one, or if there is no LAPACK. */
tt_routine tt_lapack_get(tt_lapack_id id, tt_dtype dtype);
/* The size that a routine asks for when it is called with a size of -1: the first element of `work`. */
int tt_lapack_work_size(tt_dtype dtype, const void *work);

#ifdef __cplusplus
}
#endif
#endif
