/* Environment variables: parsing and the one-time read. */
#include "base/env.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"

const tt_env_info tt_env_table[TT_ENV_COUNT] = {
#define TT_X(name, type, fallback, description) {#name, TT_ENV_##type, fallback, description},
    TT_ENV_VARIABLES(TT_X)
#undef TT_X
};

const char *tt_env_type_name(tt_env_type type) {
  static const char *const names[] = {
#define TT_X(type, name) name,
      TT_ENV_TYPES(TT_X)
#undef TT_X
  };
  return names[type];
}

typedef union env_value {
  const char *text;
  bool flag;
  int64_t number;
} env_value;

static env_value values[TT_ENV_COUNT]; /* written once, under read_once */
static pthread_once_t read_once = PTHREAD_ONCE_INIT;

bool tt_env_parse_bool(const char *text, bool *out_value) {
  static const char *const words[2][4] = {{"0", "false", "no", "off"}, {"1", "true", "yes", "on"}};
  for (int i = 0; i < 8; i++) {
    if (strcasecmp(text, words[i / 4][i % 4])) continue;
    *out_value = i / 4;
    return true;
  }
  return false;
}

bool tt_env_parse_bytes(const char *text, int64_t *out_value) {
  static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
  if (*text < '0' || *text > '9') return false;
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (errno) return false;
  for (int i = 0; i < 5; i++) {
    if (!strcasecmp(end, units[i])) return tt_mul_fits(number, (int64_t)1 << (10 * i), out_value);
  }
  return false;
}

/* Finds `text` among words separated by '|'. */
static bool parse_choice(const char *words, const char *text) {
  size_t length = strlen(text);
  for (const char *word = words, *bar;; word = bar + 1) {
    if (strcspn(word, "|") == length && !strncmp(word, text, length)) return true;
    bar = strchr(word, '|');
    if (!bar) return false;
  }
}

static bool parse(const tt_env_info *info, const char *text, env_value *out_value) {
  switch (info->type) {
    case TT_ENV_BOOL: return tt_env_parse_bool(text, &out_value->flag);
    case TT_ENV_BYTES: return tt_env_parse_bytes(text, &out_value->number);
    case TT_ENV_NUMBER: return !text[strspn(text, "0123456789")] && tt_env_parse_bytes(text, &out_value->number);
    case TT_ENV_CHOICE:
      if (!parse_choice(info->fallback, text)) return false;
      break;
    case TT_ENV_STRING: break;
  }
  out_value->text = strdup(text); /* setenv may free the environment's own text */
  return out_value->text != NULL;
}

static const char *wanted(const tt_env_info *info) {
  switch (info->type) {
    case TT_ENV_BOOL: return "1 or 0";
    case TT_ENV_BYTES: return "a size such as 512MiB or 16GiB";
    case TT_ENV_NUMBER: return "a whole number";
    case TT_ENV_CHOICE: return info->fallback;
    case TT_ENV_STRING: break;
  }
  return "a text";
}

static void read_all(void) {
  for (int i = 0; i < TT_ENV_COUNT; i++) {
    const tt_env_info *info = &tt_env_table[i];
    char fallback[32];
    size_t length = info->type == TT_ENV_CHOICE ? strcspn(info->fallback, "|") : strlen(info->fallback);
    assert(length < sizeof fallback);
    memcpy(fallback, info->fallback, length);
    fallback[length] = 0;
    const char *text = getenv(info->name);
    if (text && *text && parse(info, text, &values[i])) continue;
    if (text && *text) {
      fprintf(stderr, "torch_tpu: %s=%s is not understood (expected %s); using %s\n", info->name, text, wanted(info),
              fallback);
    }
    bool ok = parse(info, fallback, &values[i]);
    assert(ok);
    (void)ok;
  }
}

static env_value get(tt_env_id id) {
  pthread_once(&read_once, read_all);
  return values[id];
}

const char *tt_env_string(tt_env_id id) {
  assert(tt_env_table[id].type == TT_ENV_STRING || tt_env_table[id].type == TT_ENV_CHOICE);
  return get(id).text;
}

bool tt_env_bool(tt_env_id id) {
  assert(tt_env_table[id].type == TT_ENV_BOOL);
  return get(id).flag;
}

int64_t tt_env_number(tt_env_id id) {
  assert(tt_env_table[id].type == TT_ENV_BYTES || tt_env_table[id].type == TT_ENV_NUMBER);
  return get(id).number;
}
