/* The compiler: turns modules into executables, on the caller's thread or on a few threads of its own, which start when
 * there is something for them to do. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eager/internal.h"

/* TORCH_TPU_DUMP_TO: one file for each module, numbered in order of compilation. */
static void module_dump(const tt_device *d, const char *name, const tt_strbuf *text, long long number) {
  char path[4096];
  const char *short_name = strncmp(name, "aten::", 6) ? name : name + 6;
  int length = snprintf(path, sizeof path, "%s/%06lld_%s.mlir", d->dump_dir, number, short_name);
  if (length < 0 || (size_t)length >= sizeof path) return;
  FILE *f = fopen(path, "w");
  if (!f) {
    fprintf(stderr, "torch_tpu: TORCH_TPU_DUMP_TO: cannot write %s: %s\n", path, strerror(errno));
    return;
  }
  fwrite(text->data, 1, text->size, f);
  fclose(f);
}

/* Below this cost (a us of work) it takes longer to start a program than to run it: what the optimiser would gain is lost
 * in that, and compiling without it takes half the time. */
enum { QUICK_COST = 3000 };

static tt_status source_compile(tt_device *d, const tt_source *source, tt_code *c, const tt_cache_waiter *waiter) {
  if (!d->client && !d->rehearse_dir) return tt_device_is_abstract(source->name);
  TT_TRY(tt_programs_check(d));
  tt_strbuf text = TT_STRBUF_INIT, overrides = TT_STRBUF_INIT;
  tt_status status = source->print(source->what, &text);
  if (!status) {
    long long number = atomic_fetch_add(&d->programs, 1);
    if (d->dump_dir) module_dump(d, source->name, &text, number);
    const char *base = !c->is_graph && c->cost <= QUICK_COST ? d->quick_options : d->xla_options; /* the user's come last and win */
    tt_strbuf_printf(&overrides, "xla_allow_excess_precision=%s %s", c->excess_precision ? "true" : "false", base ? base : "");
    tt_compile_options options = {.env_overrides = overrides.data};
    status = d->client ? tt_cache_compile(d->cache, text.data, text.size, &options, source->name, waiter, &c->executable)
                       : tt_rehearse_compile(d, source->name, &text, overrides.data);
    if (tt_status_get_code(status) != TT_INTERRUPTED)
      status = tt_status_annotate(status, "%s: the XLA compiler failed", source->name);
  }
  tt_strbuf_free(&text);
  tt_strbuf_free(&overrides);
  return status;
}

/* The code is COMPILING, and this thread does it. */
static void code_compile(tt_device *d, tt_code *c, const tt_source *source, const tt_cache_waiter *waiter) {
  tt_status status = source_compile(d, source, c, waiter);
  c->cheap = !d->is_cpu || c->cost <= d->options.inline_cost;
  tt_code_note_use(d, c);
  pthread_mutex_lock(&d->compiler.lock);
  d->compiler.compiling--;
  c->error = status;
  atomic_store_explicit(&c->state, status ? TT_CODE_FAILED : TT_CODE_READY, memory_order_release);
  pthread_cond_broadcast(&d->compiler.done);
  pthread_mutex_unlock(&d->compiler.lock);
}

/* True if this thread is the one to compile it. What has failed is tried again: it may have been for want of memory. Whoever
 * waits never sees a state between: a failure is either still there, or somebody is at work again. */
static bool code_claim(tt_device *d, tt_code *c) {
  pthread_mutex_lock(&d->compiler.lock);
  tt_code_state state = tt_code_get_state(c);
  bool mine = state == TT_CODE_NONE || state == TT_CODE_FAILED;
  if (mine) {
    tt_status_free(c->error);
    c->error = TT_OK;
    d->compiler.compiling++;
    atomic_store(&c->state, TT_CODE_COMPILING);
  }
  pthread_mutex_unlock(&d->compiler.lock);
  return mine;
}

static void *compiler_main(void *argument) {
  tt_device *d = argument;
  tt_compiler *m = &d->compiler;
  pthread_mutex_lock(&m->lock);
  for (;;) {
    m->idle++;
    while (!m->first && !m->stop) pthread_cond_wait(&m->work, &m->lock);
    m->idle--;
    if (m->stop) break;
    tt_compile_job *job = m->first;
    m->first = job->next;
    if (!m->first) m->last = &m->first;
    pthread_mutex_unlock(&m->lock);
    code_compile(d, job->code, &job->source, NULL);
    free(job);
    pthread_mutex_lock(&m->lock);
  }
  pthread_mutex_unlock(&m->lock);
  return NULL;
}

void tt_compiler_init(tt_device *d) {
  tt_compiler *m = &d->compiler;
  pthread_mutex_init(&m->lock, NULL);
  pthread_cond_init(&m->work, NULL);
  pthread_cond_init(&m->done, NULL);
  int cores = tt_usable_cores();
  m->thread_limit = cores < TT_COMPILER_MOST_THREADS ? cores : TT_COMPILER_MOST_THREADS;
  m->last = &m->first;
}

void tt_compiler_stop(tt_device *d) {
  tt_compiler *m = &d->compiler;
  pthread_mutex_lock(&m->lock);
  m->stop = true;
  pthread_cond_broadcast(&m->work);
  pthread_mutex_unlock(&m->lock);
  for (int i = 0; i < m->thread_count; i++) pthread_join(m->threads[i], NULL);
  while (m->first) {
    tt_compile_job *job = m->first;
    m->first = job->next;
    free(job);
  }
  pthread_mutex_destroy(&m->lock);
  pthread_cond_destroy(&m->work);
  pthread_cond_destroy(&m->done);
}

void tt_code_begin(tt_device *d, tt_code *c, tt_source source) {
  if (tt_code_get_state(c) == TT_CODE_READY) return;
  if (!code_claim(d, c)) return;
  tt_compiler *m = &d->compiler;
  tt_compile_job *job = tt_malloc(sizeof *job);
  *job = (tt_compile_job){c, source, NULL};
  pthread_mutex_lock(&m->lock);
  *m->last = job;
  m->last = &job->next;
  int started = m->thread_count;
  if (!m->idle && started < m->thread_limit && !pthread_create(&m->threads[started], NULL, compiler_main, d)) m->thread_count++;
  pthread_cond_signal(&m->work);
  pthread_mutex_unlock(&m->lock);
  if (m->thread_count) return;
  /* No thread can be started: do it here. */
  pthread_mutex_lock(&m->lock);
  m->first = NULL;
  m->last = &m->first;
  pthread_mutex_unlock(&m->lock);
  code_compile(d, c, &source, NULL);
  free(job);
}

tt_status tt_code_wait(tt_device *d, tt_code *c) {
  if (tt_code_get_state(c) == TT_CODE_READY) return TT_OK;
  pthread_mutex_lock(&d->compiler.lock);
  while (tt_code_get_state(c) == TT_CODE_COMPILING) pthread_cond_wait(&d->compiler.done, &d->compiler.lock);
  tt_status status = tt_status_clone(c->error);
  pthread_mutex_unlock(&d->compiler.lock);
  return status;
}

typedef struct compile_wait {
  tt_device *device;
  void *token;
} compile_wait;

/* Another process compiles the same program: may we go on waiting? */
static tt_status compile_wait_check(void *context) {
  compile_wait *w = context;
  tt_device_wait_end(w->device, w->token);
  bool interrupted = w->device->options.hooks.interrupted && w->device->options.hooks.interrupted();
  w->token = tt_device_wait_begin(w->device);
  return interrupted ? tt_status_make(TT_INTERRUPTED, "interrupted while waiting for a compilation") : TT_OK;
}

tt_status tt_code_require(tt_device *d, tt_code *c, tt_source source) {
  if (tt_code_get_state(c) == TT_CODE_READY) return TT_OK;
  compile_wait wait = {d, tt_device_wait_begin(d)};
  if (code_claim(d, c)) code_compile(d, c, &source, &(tt_cache_waiter){compile_wait_check, &wait});
  tt_status status = tt_code_wait(d, c);
  tt_device_wait_end(d, wait.token);
  return status;
}

void tt_code_unload(tt_device *d, tt_code *c) {
  pthread_mutex_lock(&d->compiler.lock); /* whoever waits for it sees one of the two states */
  tt_executable *executable = c->executable;
  c->executable = NULL;
  atomic_store_explicit(&c->state, TT_CODE_NONE, memory_order_release);
  pthread_mutex_unlock(&d->compiler.lock);
  tt_executable_destroy(executable);
}

void tt_code_clear(tt_code *c) {
  if (c->executable) tt_executable_destroy(c->executable);
  tt_status_free(c->error);
}

static tt_status program_print(const void *what, tt_strbuf *out) { return tt_module_print_program(what, out); }

tt_source tt_program_source(const tt_program *program) { return (tt_source){program_print, program, program->name}; }
