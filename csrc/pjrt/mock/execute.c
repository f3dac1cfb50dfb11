/* The mock plugin's programs: compiling, storing, running. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/mock/internal.h"

static const char stored_magic[] = "mock program\n";

/* ---- programs ------------------------------------------------------------------------------------------------ */

void mock_executable_release(PJRT_Executable *e) {
  pthread_mutex_lock(&mock_lock);
  bool last = !--e->references;
  pthread_mutex_unlock(&mock_lock);
  if (!last) return;
  mock_free(e->program.parameters);
  mock_free(e->program.results);
  mock_free(e->text);
  mock_free(e);
}

PJRT_Error *mock_executable_make(const char *text, size_t size, PJRT_Executable **out_executable) {
  PJRT_Executable *e = mock_allocate(sizeof *e);
  e->references = 1;
  const char *problem = mock_program_parse(text, size, mock_allocate, &e->program);
  if (problem) {
    mock_executable_release(e);
    char message[256];
    snprintf(message, sizeof message, "mock: cannot parse the program: %s", problem);
    return mock_invalid(message);
  }
  e->text = mock_allocate(size);
  memcpy(e->text, text, size);
  e->size = size;
  *out_executable = e;
  return NULL;
}

static PJRT_Error *load(const char *text, size_t size, PJRT_LoadedExecutable **out_loaded) {
  PJRT_Executable *e;
  PJRT_Error *error = mock_executable_make(text, size, &e);
  if (error) return error;
  *out_loaded = mock_allocate(sizeof **out_loaded);
  (*out_loaded)->executable = e;
  return NULL;
}

PJRT_Error *mock_program_check(const PJRT_Program *p) {
  if (p->format_size != 4 || memcmp(p->format, "mlir", 4)) return mock_invalid("mock: the format is not mlir");
  if (p->code_size >= 3 && !memcmp(p->code, "ML\xef", 3)) return mock_error(PJRT_UNIMPLEMENTED, "mock: bytecode");
  return NULL;
}

PJRT_Error *mock_Client_Compile(PJRT_Client_Compile_Args *args) {
  PJRT_Error *error = mock_enter(TT_MOCK_COMPILE);
  if (!error) error = mock_program_check(args->program);
  if (error) return error;
  if (!args->compile_options_size) return mock_invalid("mock: no compile options");
  return load(args->program->code, args->program->code_size, &args->executable);
}

PJRT_Error *mock_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args *args) {
  mock_executable_release(args->executable->executable);
  mock_free(args->executable);
  return NULL;
}

PJRT_Error *mock_LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args *args) {
  args->executable = args->loaded_executable->executable;
  mock_add(&args->executable->references, 1);
  return NULL;
}

PJRT_Error *mock_Executable_Destroy(PJRT_Executable_Destroy_Args *args) {
  mock_executable_release(args->executable);
  return NULL;
}

PJRT_Error *mock_Executable_NumOutputs(PJRT_Executable_NumOutputs_Args *args) {
  args->num_outputs = (size_t)args->executable->program.result_count;
  return NULL;
}

static void free_stored(PJRT_SerializedExecutable *stored) { mock_free(stored); }

PJRT_Error *mock_Executable_Serialize(PJRT_Executable_Serialize_Args *args) {
  PJRT_Error *error = mock_enter_optional();
  if (error) return error;
  size_t prefix = strlen(stored_magic);
  char *stored = mock_allocate(prefix + args->executable->size);
  memcpy(stored, stored_magic, prefix);
  memcpy(stored + prefix, args->executable->text, args->executable->size);
  args->serialized_bytes = stored;
  args->serialized_bytes_size = prefix + args->executable->size;
  args->serialized_executable = (PJRT_SerializedExecutable *)stored;
  args->serialized_executable_deleter = free_stored;
  return NULL;
}

PJRT_Error *mock_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args *args) {
  PJRT_Error *error = mock_enter_optional();
  if (!error) error = mock_enter(TT_MOCK_COMPILE);
  if (error) return error;
  size_t prefix = strlen(stored_magic);
  if (args->serialized_executable_size < prefix || memcmp(args->serialized_executable, stored_magic, prefix)) {
    return mock_invalid("mock: not a stored program");
  }
  return load(args->serialized_executable + prefix, args->serialized_executable_size - prefix,
              &args->loaded_executable);
}

/* ---- execution ----------------------------------------------------------------------------------------------- */

typedef struct job {
  PJRT_Executable *executable;
  mock_cell **inputs, **outputs;
  bool *donated; /* for each input */
  bool fails;
  int fail_code;
  uint64_t number; /* its place in the order */
  struct job *next;
} job;

/* Asynchronous executions that wait for the one thread that runs them; it ends when there are none. Under mock_lock. */
static job *waiting, **waiting_end = &waiting;
static bool worker_runs;

static bool is_kept(const PJRT_ExecuteOptions *options, int64_t index) {
  for (size_t i = 0; i < options->num_non_donatable_input_indices; i++) {
    if (options->non_donatable_input_indices[i] == index) return true;
  }
  return false;
}

/* Under mock_lock: what is donated, and whether the inputs can be used at all. */
static const char *check_inputs(const mock_program *m, const PJRT_LoadedExecutable_Execute_Args *args,
                                bool *donated) {
  PJRT_Buffer *const *inputs = args->argument_lists[0];
  for (int i = 0; i < m->parameter_count; i++) {
    if (inputs[i]->deleted) return "mock: an input has been deleted or donated";
    if (inputs[i]->type.bytes != m->parameters[i].type.bytes) return "mock: an input has the wrong size";
    donated[i] = m->parameters[i].link >= 0 && !is_kept(args->options, i) &&
                 !inputs[i]->external_references;
  }
  for (int i = 0; i < m->parameter_count; i++) {
    for (int j = 0; donated[i] && j < m->parameter_count; j++) {
      if (j != i && inputs[j] == inputs[i]) return "mock: a donated input is used twice";
    }
  }
  return NULL;
}

static job *job_make(PJRT_Executable *e) {
  job *j = mock_allocate(sizeof *j);
  j->executable = e;
  mock_add(&e->references, 1);
  j->inputs = mock_allocate((size_t)e->program.parameter_count * sizeof *j->inputs);
  j->outputs = mock_allocate((size_t)e->program.result_count * sizeof *j->outputs);
  j->donated = mock_allocate((size_t)e->program.parameter_count * sizeof *j->donated);
  return j;
}

static void job_destroy(job *j) {
  for (int i = 0; i < j->executable->program.parameter_count; i++) {
    if (j->inputs[i]) mock_cell_release(j->inputs[i]);
  }
  for (int r = 0; r < j->executable->program.result_count; r++) {
    if (j->outputs[r]) mock_cell_release(j->outputs[r]);
  }
  mock_executable_release(j->executable);
  mock_free(j->inputs);
  mock_free(j->outputs);
  mock_free(j->donated);
  mock_free(j);
}

/* The result takes the input's memory. */
static void move_contents(mock_cell *from, mock_cell *to) {
  pthread_mutex_lock(&mock_lock);
  mock.live_bytes -= (int64_t)to->bytes;
  free(to->data);
  to->data = from->data;
  from->data = NULL;
  pthread_mutex_unlock(&mock_lock);
}

static void compute(job *j) {
  const mock_program *m = &j->executable->program;
  /* Aliases first: a copy then overwrites the memory that it gets. Copies read before any move. */
  void **copies = mock_allocate((size_t)m->result_count * sizeof *copies);
  for (int r = 0; r < m->result_count; r++) {
    size_t bytes = m->results[r].type.bytes;
    if (m->results[r].link < 0) continue;
    copies[r] = mock_allocate(bytes);
    memcpy(copies[r], j->inputs[m->results[r].link]->data, bytes);
  }
  for (int i = 0; i < m->parameter_count; i++) {
    if (j->donated[i]) move_contents(j->inputs[i], j->outputs[m->parameters[i].link]);
  }
  for (int r = 0; r < m->result_count; r++) {
    if (copies[r]) memcpy(j->outputs[r]->data, copies[r], m->results[r].type.bytes);
    mock_free(copies[r]);
  }
  mock_free(copies);
}

static void run(job *j) {
  pthread_mutex_lock(&mock_lock);
  while (mock.ended != j->number) pthread_cond_wait(&mock_changed, &mock_lock);
  pthread_mutex_unlock(&mock_lock);
  mock_pause(TT_MOCK_EXECUTE);
  int code = j->fails ? j->fail_code : 0;
  for (int i = 0; i < j->executable->program.parameter_count && !code; i++) code = mock_cell_await(j->inputs[i]);
  if (!code) compute(j);
  for (int r = 0; r < j->executable->program.result_count; r++) mock_cell_finish(j->outputs[r], code);
  job_destroy(j);
  pthread_mutex_lock(&mock_lock);
  mock.ended++;
  pthread_cond_broadcast(&mock_changed);
  pthread_mutex_unlock(&mock_lock);
}

static void *run_waiting(void *unused) {
  pthread_mutex_lock(&mock_lock);
  while (waiting) {
    job *j = waiting;
    waiting = j->next;
    if (!waiting) waiting_end = &waiting;
    pthread_mutex_unlock(&mock_lock);
    run(j);
    pthread_mutex_lock(&mock_lock);
  }
  worker_runs = false;
  pthread_mutex_unlock(&mock_lock);
  return unused;
}

static PJRT_Error *make_outputs(const mock_program *m, PJRT_Buffer **outputs) {
  for (int r = 0; r < m->result_count; r++) {
    outputs[r] = mock_buffer_make(&m->results[r].type, false);
    if (outputs[r]) continue;
    for (int made = 0; made < r; made++) mock_buffer_destroy(outputs[made]);
    return mock_out_of_memory(m->results[r].type.bytes);
  }
  return NULL;
}

/* Under mock_lock: from here on the program counts as begun. Gives whether the other thread runs it. */
static bool begin(job *j, PJRT_Buffer *const *inputs, PJRT_Buffer *const *outputs) {
  const mock_program *m = &j->executable->program;
  for (int i = 0; i < m->parameter_count; i++) {
    j->inputs[i] = inputs[i]->contents;
    j->inputs[i]->references++;
    if (j->donated[i]) inputs[i]->deleted = true;
  }
  for (int r = 0; r < m->result_count; r++) {
    j->outputs[r] = outputs[r]->contents;
    j->outputs[r]->references++;
  }
  mock.count[TT_MOCK_RESULT]++;
  j->fails = mock.fail_at[TT_MOCK_RESULT] && !--mock.fail_at[TT_MOCK_RESULT];
  j->fail_code = mock.fail_code;
  j->number = mock.begun++;
  if (!mock.async) return false;
  *waiting_end = j;
  waiting_end = &j->next;
  return true;
}

PJRT_Error *mock_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args) {
  PJRT_Error *error = mock_count(TT_MOCK_EXECUTE);
  if (error) return error;
  const mock_program *m = &args->executable->executable->program;
  if (args->num_devices != 1) return mock_error(PJRT_UNIMPLEMENTED, "mock: several devices");
  if (args->num_args != (size_t)m->parameter_count) return mock_invalid("mock: wrong number of inputs");
  PJRT_Buffer **outputs = args->output_lists[0];
  error = make_outputs(m, outputs);
  if (error) return error;
  job *j = job_make(args->executable->executable);
  pthread_mutex_lock(&mock_lock);
  const char *problem = check_inputs(m, args, j->donated);
  bool async = !problem && begin(j, args->argument_lists[0], outputs), starts = async && !worker_runs;
  if (starts) worker_runs = true;
  pthread_mutex_unlock(&mock_lock);
  if (problem) {
    for (int r = 0; r < m->result_count; r++) mock_buffer_destroy(outputs[r]);
    job_destroy(j);
    return mock_invalid(problem);
  }
  pthread_t thread;
  if (!async) run(j);
  else if (starts && pthread_create(&thread, NULL, run_waiting, NULL)) run_waiting(NULL);
  else if (starts) pthread_detach(thread);
  return NULL;
}
