/* Own C functions that programs call: registering them with a plugin. */
#include <pthread.h>
#include <string.h>

#include "pjrt/ffi_abi.h"
#include "pjrt/internal.h"

static pthread_mutex_t register_lock = PTHREAD_MUTEX_INITIALIZER;

const struct PJRT_FFI_Extension *tt_ffi_extension(const PJRT_Api *api) {
  for (const PJRT_Extension *e = api->extension_start; e; e = e->next) {
    if (e->type != PJRT_EXTENSION_FFI || e->struct_size < sizeof(PJRT_FFI_Extension)) continue;
    const PJRT_FFI_Extension *ffi = (const void *)e;
    if (ffi->register_handler) return ffi;
  }
  return NULL;
}

static tt_status register_one(const tt_plugin *p, const tt_handler *h) {
  PJRT_FFI_Register_Args args = {.struct_size = sizeof args, .name = h->name, .name_size = strlen(h->name),
                                 .platform = "Host", .platform_size = strlen("Host")};
  memcpy(&args.handler, &h->call, sizeof args.handler); /* ISO C has no cast from function to object pointers */
  PJRT_Error *error = tt_ffi_extension(p->api)->register_handler(&args);
  return tt_status_annotate(tt_pjrt_check(p->api, error, "PJRT_FFI_Register_Handler"), "%s", h->name);
}

static tt_status register_all(tt_plugin *p, int count, const tt_handler *handlers) {
  TT_TRY(tt_plugin_require(p, TT_FEATURE_HANDLERS));
  for (; p->handlers_registered < count; p->handlers_registered++) {
    TT_TRY(register_one(p, &handlers[p->handlers_registered]));
  }
  return TT_OK;
}

tt_status tt_plugin_register(tt_plugin *p, int count, const tt_handler *handlers) {
  pthread_mutex_lock(&register_lock);
  tt_status status = register_all(p, count, handlers);
  pthread_mutex_unlock(&register_lock);
  return status;
}
