/* xla.CompileOptionsProto by hand: a few fields don't need a protobuf library.
 *
 * A message is a sequence of fields, each a key (number << 3 | wire type) and a value: a varint (type 0), eight bytes
 * (type 1), or a length and that many bytes (type 2), which is what texts and inner messages are. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "pjrt/internal.h"

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2 };
/* CompileOptionsProto */
enum { FIELD_BUILD_OPTIONS = 3, FIELD_PORTABLE = 4, FIELD_OVERRIDES = 7 };
/* ExecutableBuildOptionsProto */
enum { FIELD_DEVICE_ORDINAL = 1, FIELD_REPLICAS = 4, FIELD_PARTITIONS = 5, FIELD_USE_SPMD = 6, FIELD_USE_SHARDY = 19,
       FIELD_EFFORT = 24 };
/* OptionOverrideProto, and an entry of a map */
enum { FIELD_STRING = 1, FIELD_BOOL = 2, FIELD_INT = 3, FIELD_DOUBLE = 4 };
enum { FIELD_MAP_KEY = 1, FIELD_MAP_VALUE = 2 };

static void put_varint(tt_strbuf *s, uint64_t value) {
  uint8_t bytes[10];
  size_t n = 0;
  for (; value >= 0x80; value >>= 7) bytes[n++] = (uint8_t)(value | 0x80);
  bytes[n++] = (uint8_t)value;
  tt_strbuf_add_bytes(s, bytes, n);
}

static void put_key(tt_strbuf *s, unsigned field, unsigned wire_type) { put_varint(s, field << 3 | wire_type); }

static void put_int(tt_strbuf *s, unsigned field, int64_t value) {
  put_key(s, field, WIRE_VARINT);
  put_varint(s, (uint64_t)value);
}

static void put_double(tt_strbuf *s, unsigned field, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint8_t bytes[8]; /* little-endian, whatever the machine */
  for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(bits >> 8 * i);
  put_key(s, field, WIRE_FIXED64);
  tt_strbuf_add_bytes(s, bytes, sizeof bytes);
}

static void put_bytes(tt_strbuf *s, unsigned field, const char *data, size_t size) {
  put_key(s, field, WIRE_BYTES);
  put_varint(s, size);
  tt_strbuf_add_bytes(s, data, size);
}

/* Appends `message` as a field and gives it up. */
static void put_message(tt_strbuf *s, unsigned field, tt_strbuf *message) {
  put_bytes(s, field, message->data, message->size);
  tt_strbuf_free(message);
}

/* The type that the text looks like: XLA refuses a value of another type than the option's. */
static void put_override_value(tt_strbuf *s, const char *text) {
  char *end;
  size_t length = strlen(text);
  errno = 0;
  long long whole = strtoll(text, &end, 10);
  if (!strcmp(text, "true") || !strcmp(text, "false")) {
    put_int(s, FIELD_BOOL, *text == 't');
  } else if (*text && !*end && !errno) {
    put_int(s, FIELD_INT, whole);
  } else {
    double real = strtod(text, &end);
    if (*text && !*end) {
      put_double(s, FIELD_DOUBLE, real);
    } else if (length >= 2 && text[0] == '"' && text[length - 1] == '"') {
      put_bytes(s, FIELD_STRING, text + 1, length - 2);
    } else {
      put_bytes(s, FIELD_STRING, text, length);
    }
  }
}

static tt_status put_override(tt_strbuf *s, char *assignment) {
  char *equals = strchr(assignment, '=');
  if (!equals || equals == assignment) {
    return tt_status_make(TT_INVALID_ARGUMENT, "XLA option '%s' is not of the form name=value", assignment);
  }
  *equals = 0;
  tt_strbuf value = TT_STRBUF_INIT, entry = TT_STRBUF_INIT;
  put_override_value(&value, equals + 1);
  put_bytes(&entry, FIELD_MAP_KEY, assignment, (size_t)(equals - assignment));
  put_message(&entry, FIELD_MAP_VALUE, &value);
  put_message(s, FIELD_OVERRIDES, &entry);
  return TT_OK;
}

static tt_status put_overrides(tt_strbuf *s, const char *text) {
  static const char space[] = " \t\r\n";
  tt_strbuf copy = TT_STRBUF_INIT;
  tt_strbuf_add(&copy, text);
  tt_status status = TT_OK;
  char *rest = NULL;
  for (char *word = strtok_r(copy.data, space, &rest); word && !status; word = strtok_r(NULL, space, &rest)) {
    status = put_override(s, word);
  }
  tt_strbuf_free(&copy);
  return status;
}

tt_status tt_compile_options_write(const tt_compile_options *options, bool portable, uint8_t **out_data,
                                   size_t *out_size) {
  static const tt_compile_options defaults = {0};
  const tt_compile_options *o = options ? options : &defaults;
  *out_data = NULL;
  *out_size = 0;
  if (o->replicas < 0 || o->partitions < 0) {
    return tt_status_make(TT_INVALID_ARGUMENT, "a program cannot have %d replicas and %d partitions", o->replicas,
                          o->partitions);
  }
  tt_strbuf build = TT_STRBUF_INIT, s = TT_STRBUF_INIT;
  put_int(&build, FIELD_DEVICE_ORDINAL, -1); /* not tied to a device */
  put_int(&build, FIELD_REPLICAS, o->replicas ? o->replicas : 1);
  put_int(&build, FIELD_PARTITIONS, o->partitions ? o->partitions : 1);
  if (o->use_spmd) put_int(&build, FIELD_USE_SPMD, 1);
  if (o->use_shardy) put_int(&build, FIELD_USE_SHARDY, 1);
  if (o->effort) put_int(&build, FIELD_EFFORT, o->effort);
  put_message(&s, FIELD_BUILD_OPTIONS, &build);
  if (portable) put_int(&s, FIELD_PORTABLE, 1);
  tt_status status = o->env_overrides ? put_overrides(&s, o->env_overrides) : TT_OK;
  if (status) {
    tt_strbuf_free(&s);
    return status;
  }
  *out_data = (uint8_t *)s.data;
  *out_size = s.size;
  return TT_OK;
}

tt_status tt_compile_options_serialize(const tt_compile_options *options, uint8_t **out_data, size_t *out_size) {
  return tt_compile_options_write(options, false, out_data, out_size);
}
