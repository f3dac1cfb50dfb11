/* Where LAPACK's routines are. See lapack.h. */
#include "kernels/lapack.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { TYPES = 4 };
static const char *const names[TT_LAPACK_COUNT][TYPES] = {
#define TT_X(name, real, complex) {"s" #real "_", "d" #real "_", "c" #complex "_", "z" #complex "_"},
    TT_LAPACK_ROUTINES(TT_X)
#undef TT_X
};

/* One LAPACK per process: handlers get no context from XLA. Written before `loaded` is set, read after. */
static tt_routine routines[TT_LAPACK_COUNT][TYPES];
static _Atomic(bool) loaded;
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;

static tt_routine routine_of(void *library, const char *name) {
  void *found = dlsym(library, name);
  tt_routine routine = NULL;
  memcpy(&routine, &found, sizeof routine); /* ISO C has no cast from object to function pointers */
  return routine;
}

static tt_routine find_loaded(const char *name) { return routine_of(RTLD_DEFAULT, name); }

static bool fill(tt_lapack_lookup lookup, void *library) {
  for (int id = 0; id < TT_LAPACK_COUNT; id++) {
    for (int type = 0; type < TYPES; type++) {
      routines[id][type] = lookup ? lookup(names[id][type]) : routine_of(library, names[id][type]);
      if (!routines[id][type]) return false;
    }
  }
  return true;
}

/* The library stays open if it is used. */
static bool fill_from_library(const char *file) {
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library) return false;
  if (fill(NULL, library)) return true;
  dlclose(library);
  return false;
}

bool tt_lapack_load(tt_lapack_lookup lookup) {
  pthread_mutex_lock(&load_lock);
  bool found = atomic_load(&loaded);
  if (!found && lookup) found = fill(lookup, NULL);
  else if (!found) found = fill(find_loaded, NULL) || fill_from_library("liblapack.so.3") || fill_from_library("libopenblas.so.0");
  atomic_store(&loaded, found);
  pthread_mutex_unlock(&load_lock);
  return found;
}

int tt_lapack_work_size(tt_dtype dtype, const void *work) {
  bool is_single = dtype == TT_F32 || dtype == TT_C64;
  double size = is_single ? (double)*(const float *)work : *(const double *)work; /* of a complex number: the real part */
  return size >= 1 && size < INT_MAX ? (int)size : 1;
}

tt_routine tt_lapack_get(tt_lapack_id id, tt_dtype dtype) {
  if (!atomic_load(&loaded)) return NULL;
  switch (dtype) {
    case TT_F32: return routines[id][0];
    case TT_F64: return routines[id][1];
    case TT_C64: return routines[id][2];
    case TT_C128: return routines[id][3];
    default: return NULL;
  }
}
