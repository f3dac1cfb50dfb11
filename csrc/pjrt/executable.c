/* Programs: compiling, storing, running. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "pjrt/internal.h"

/* In front of a stored program: what it is, and what the plugin's bytes don't tell. */
typedef struct stored_header {
  char magic[7];
  uint8_t may_donate;
} stored_header;
static const char stored_magic[7] = "ttpjrt1";

enum { STACK_INPUTS = 64 };

static tt_status count_outputs(tt_executable *e) {
  const PJRT_Api *api = e->client->api;
  TT_PJRT_CALL_ARGS(LoadedExecutable_GetExecutable, get, .loaded_executable = e->loaded);
  TT_TRY(tt_pjrt_check(api, api->LoadedExecutable_GetExecutable(&get), "PJRT_LoadedExecutable_GetExecutable"));
  TT_PJRT_CALL_ARGS(Executable_NumOutputs, count, .executable = get.executable);
  tt_status status = tt_pjrt_check(api, api->Executable_NumOutputs(&count), "PJRT_Executable_NumOutputs");
  TT_PJRT_CALL_ARGS(Executable_Destroy, destroy, .executable = get.executable);
  tt_pjrt_ignore(api, api->Executable_Destroy(&destroy));
  e->output_count = (int)count.num_outputs;
  return status;
}

/* Takes `loaded`. */
static tt_status make_executable(tt_client *c, PJRT_LoadedExecutable *loaded, bool may_donate,
                                 tt_executable **out_executable) {
  tt_executable *e = tt_calloc(1, sizeof *e);
  *e = (tt_executable){.client = c, .loaded = loaded, .may_donate = may_donate};
  atomic_fetch_add_explicit(&c->loaded, 1, memory_order_relaxed);
  tt_status status = count_outputs(e);
  if (status) {
    tt_executable_destroy(e);
    return status;
  }
  *out_executable = e;
  return TT_OK;
}

/* Both forms of aliasing are attributes whose names are in the text, and in bytecode's table of strings. */
bool tt_program_mentions_donation(const char *program, size_t size) {
  return memmem(program, size, "tf.aliasing_output", 18) || memmem(program, size, "jax.buffer_donor", 16);
}

tt_status tt_executable_compile(tt_client *c, const char *program, size_t size, const tt_compile_options *options,
                                tt_executable **out_executable) {
  *out_executable = NULL;
  uint8_t *proto;
  size_t proto_size;
  TT_TRY(tt_compile_options_write(options, tt_compile_is_portable(c->device_count, options), &proto, &proto_size));
  PJRT_Program source = {.struct_size = sizeof source, .code = (char *)program, .code_size = size, .format = "mlir",
                         .format_size = 4};
  TT_PJRT_CALL_ARGS(Client_Compile, args, .client = c->client, .program = &source,
                    .compile_options = (const char *)proto, .compile_options_size = proto_size);
  tt_status status = tt_pjrt_check(c->api, c->api->Client_Compile(&args), "compilation failed");
  free(proto);
  TT_TRY(status);
  return make_executable(c, args.executable, tt_program_mentions_donation(program, size), out_executable);
}

tt_status tt_pjrt_serialize(tt_plugin *p, PJRT_Executable *executable, bool may_donate, uint8_t **out_data,
                            size_t *out_size) {
  *out_data = NULL;
  *out_size = 0;
  TT_TRY(tt_plugin_require(p, TT_FEATURE_SERIALIZE));
  TT_PJRT_CALL_ARGS(Executable_Serialize, args, .executable = executable);
  tt_status status = tt_pjrt_check(p->api, p->api->Executable_Serialize(&args), "storing a program failed");
  if (status) return tt_plugin_note(p, TT_FEATURE_SERIALIZE, status);
  stored_header header = {.may_donate = may_donate};
  memcpy(header.magic, stored_magic, sizeof header.magic);
  *out_size = sizeof header + args.serialized_bytes_size;
  *out_data = tt_malloc(*out_size);
  memcpy(*out_data, &header, sizeof header);
  memcpy(*out_data + sizeof header, args.serialized_bytes, args.serialized_bytes_size);
  if (args.serialized_executable_deleter) args.serialized_executable_deleter(args.serialized_executable);
  return TT_OK;
}

tt_status tt_executable_serialize(tt_executable *e, uint8_t **out_data, size_t *out_size) {
  *out_data = NULL;
  *out_size = 0;
  tt_client *c = e->client;
  TT_TRY(tt_plugin_require(c->plugin, TT_FEATURE_SERIALIZE));
  TT_PJRT_CALL_ARGS(LoadedExecutable_GetExecutable, get, .loaded_executable = e->loaded);
  TT_TRY(tt_pjrt_check(c->api, c->api->LoadedExecutable_GetExecutable(&get), "PJRT_LoadedExecutable_GetExecutable"));
  tt_status status = tt_pjrt_serialize(c->plugin, get.executable, e->may_donate, out_data, out_size);
  TT_PJRT_CALL_ARGS(Executable_Destroy, destroy, .executable = get.executable);
  tt_pjrt_ignore(c->api, c->api->Executable_Destroy(&destroy));
  return status;
}

tt_status tt_executable_deserialize(tt_client *c, const uint8_t *data, size_t size, const tt_compile_options *options,
                                    tt_executable **out_executable) {
  *out_executable = NULL;
  TT_TRY(tt_plugin_require(c->plugin, TT_FEATURE_SERIALIZE));
  stored_header header;
  if (size <= sizeof header || memcmp(data, stored_magic, sizeof stored_magic)) {
    return tt_status_make(TT_INVALID_ARGUMENT, "loading a stored program failed: these bytes are not one");
  }
  memcpy(&header, data, sizeof header);
  TT_PJRT_CALL_ARGS(Executable_DeserializeAndLoad, args, .client = c->client,
                    .serialized_executable = (const char *)data + sizeof header,
                    .serialized_executable_size = size - sizeof header);
  uint8_t *proto = NULL;
  if (options) { /* else those it was compiled with */
    TT_TRY(tt_compile_options_write(options, tt_compile_is_portable(c->device_count, options), &proto,
                                    &args.overridden_serialized_compile_options_size));
    args.overridden_serialized_compile_options = (const char *)proto;
  }
  tt_status status =
      tt_pjrt_check(c->api, c->api->Executable_DeserializeAndLoad(&args), "loading a stored program failed");
  free(proto);
  if (status) return tt_plugin_note(c->plugin, TT_FEATURE_SERIALIZE, status);
  return make_executable(c, args.loaded_executable, header.may_donate, out_executable);
}

void tt_executable_destroy(tt_executable *e) {
  if (!e) return;
  TT_PJRT_CALL_ARGS(LoadedExecutable_Destroy, args, .executable = e->loaded);
  tt_pjrt_ignore(e->client->api, e->client->api->LoadedExecutable_Destroy(&args));
  atomic_fetch_sub_explicit(&e->client->loaded, 1, memory_order_relaxed);
  free(e);
}

int tt_client_loaded_count(const tt_client *c) { return atomic_load_explicit(&c->loaded, memory_order_relaxed); }

int tt_executable_output_count(const tt_executable *e) { return e->output_count; }

static tt_status run(tt_executable *e, int device, int input_count, tt_pjrt_buffer *const *inputs, size_t kept_count,
                     const int64_t *kept, tt_pjrt_buffer **outputs) {
  tt_client *c = e->client;
  PJRT_ExecuteOptions options = {.struct_size = sizeof options, .non_donatable_input_indices = kept,
                                 .num_non_donatable_input_indices = kept_count};
  TT_PJRT_CALL_ARGS(LoadedExecutable_Execute, args, .executable = e->loaded, .options = &options,
                    .argument_lists = &inputs, .num_devices = 1, .num_args = (size_t)input_count,
                    .output_lists = &outputs, .execute_device = c->device_count > 1 ? c->devices[device] : NULL);
  return tt_pjrt_check(c->api, c->api->LoadedExecutable_Execute(&args), "execution failed");
}

tt_status tt_executable_execute(tt_executable *e, int device, int input_count, tt_pjrt_buffer *const *inputs,
                                const bool *donate, tt_pjrt_buffer **outputs) {
  TT_TRY(tt_client_check_device(e->client, device));
  if (!e->may_donate) return run(e, device, input_count, inputs, 0, NULL, outputs);
  int64_t on_stack[STACK_INPUTS], *kept = on_stack;
  if (input_count > STACK_INPUTS) kept = tt_malloc((size_t)input_count * sizeof *kept);
  size_t kept_count = 0;
  for (int i = 0; i < input_count; i++) {
    if (!donate || !donate[i]) kept[kept_count++] = i;
  }
  tt_status status = run(e, device, input_count, inputs, kept_count, kept, outputs);
  if (kept != on_stack) free(kept);
  return status;
}
