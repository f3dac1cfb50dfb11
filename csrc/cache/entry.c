/* An entry: head, name, plugin, the stored program, and a checksum over all of it at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "cache/internal.h"

typedef struct entry_head { /* no holes: all of it is written */
  char magic[8];
  uint32_t version, name_size, plugin_size, is_note;
  tt_cache_key key;
  uint64_t payload_size;
  int64_t compile_ns, created_ns;
} entry_head;
_Static_assert(sizeof(entry_head) == 72, "the head is a format: no padding");

static const char entry_magic[8] = {'T', 'T', 'C', 'A', 'C', 'H', 'E', '\n'};
enum { ENTRY_VERSION = 1, MOST_TEXT = 1024 };

static uint32_t text_size(size_t size) { return (uint32_t)(size < MOST_TEXT ? size : MOST_TEXT); }

void tt_entry_encode(const tt_entry *e, uint8_t **out_data, size_t *out_size) {
  entry_head head = {
      .version = ENTRY_VERSION,
      .name_size = text_size(e->name_size),
      .plugin_size = text_size(e->plugin_size),
      .is_note = e->is_note,
      .key = e->key,
      .payload_size = e->payload_size,
      .compile_ns = e->compile_ns,
      .created_ns = e->created_ns,
  };
  memcpy(head.magic, entry_magic, sizeof head.magic);
  const struct { const void *data; size_t size; } parts[] = {
      {&head, sizeof head}, {e->name, head.name_size}, {e->plugin, head.plugin_size}, {e->payload, e->payload_size}};
  size_t size = sizeof head + head.name_size + head.plugin_size + e->payload_size;
  uint8_t *data = tt_malloc(size + sizeof(tt_hash128)), *at = data;
  for (int i = 0; i < 4; i++) {
    if (parts[i].size) memcpy(at, parts[i].data, parts[i].size);
    at += parts[i].size;
  }
  tt_hash128 checksum = tt_hash_bytes(data, size);
  memcpy(at, &checksum, sizeof checksum);
  *out_data = data;
  *out_size = size + sizeof checksum;
}

const char *tt_entry_decode_head(const uint8_t *data, size_t have, size_t size, tt_entry *out_entry) {
  entry_head head;
  if (size < sizeof head + sizeof(tt_hash128) || have < sizeof head) return "it is too short";
  memcpy(&head, data, sizeof head);
  if (memcmp(head.magic, entry_magic, sizeof head.magic)) return "it is not an entry of a compile cache";
  if (head.version != ENTRY_VERSION) return "it has another format version";
  if (head.name_size > MOST_TEXT || head.plugin_size > MOST_TEXT) return "its head is damaged";
  size_t texts = sizeof head + head.name_size + head.plugin_size, rest = size - sizeof(tt_hash128);
  if (texts > rest || head.payload_size != rest - texts) return "it has another length than its head says";
  if (texts > have) return "its head is damaged";
  *out_entry = (tt_entry){
      .is_note = head.is_note != 0,
      .key = head.key,
      .name = (const char *)data + sizeof head,
      .name_size = head.name_size,
      .plugin = (const char *)data + sizeof head + head.name_size,
      .plugin_size = head.plugin_size,
      .payload = data + texts,
      .payload_size = head.payload_size,
      .compile_ns = head.compile_ns,
      .created_ns = head.created_ns,
  };
  return NULL;
}

const char *tt_entry_decode(const uint8_t *data, size_t size, tt_entry *out_entry) {
  const char *problem = tt_entry_decode_head(data, size, size, out_entry);
  if (problem) return problem;
  tt_hash128 stored, actual = tt_hash_bytes(data, size - sizeof stored);
  memcpy(&stored, data + size - sizeof stored, sizeof stored);
  return tt_hash_equal(stored, actual) ? NULL : "its checksum is wrong";
}

void tt_entry_file(const tt_cache_key *key, char out_file[TT_CACHE_FILE_NAME]) {
  snprintf(out_file, TT_CACHE_FILE_NAME, "%016llx%016llx%016llx.ttx", (unsigned long long)key->words[0],
           (unsigned long long)key->words[1], (unsigned long long)key->words[2]);
}

bool tt_entry_file_key(const char *file, tt_cache_key *out_key) {
  char digits[17] = {0}, again[TT_CACHE_FILE_NAME];
  if (strlen(file) != 3 * 16 + strlen(".ttx")) return false;
  for (int i = 0; i < 3; i++) {
    memcpy(digits, file + 16 * i, 16);
    out_key->words[i] = strtoull(digits, NULL, 16);
  }
  tt_entry_file(out_key, again);
  return !strcmp(file, again);
}
