/* The hash table of packed instances, as engine/dataset/sample_rows.py explains it.
 *
 * With numpy a place for an instance costs four times as much, because every key becomes an object first. The
 * hash of a key is Python's own, which comes as an address: a look-up in Python finds what was entered here.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FREE = 0, FAR = 16 /* entries between asking for memory and using it */ };

struct table { uint32_t *tags; int32_t *rows; uint64_t mask; };

/* Keys have one size, or -1 and where each of them ends, after where the first one begins. */
struct keys { const uint8_t *data; uint64_t count, begin; int64_t size; const uint64_t *ends; };

struct text { const uint8_t *at; size_t size; };

static struct text key_of(const struct keys *k, size_t i)
{
  if (k->size < 0)
    return (struct text){k->data + k->ends[i], k->ends[i + 1] - k->ends[i]};
  return (struct text){k->data + k->begin + i * (uint64_t)k->size, (size_t)k->size};
}

/* Whether two of the keys are equal; `tags` are their hashes, `places` has room for all in half of it. */
static int is_any_twice(const struct keys *k, const uint32_t *tags, int32_t *places, uint64_t mask)
{
  memset(places, -1, (mask + 1) * sizeof *places);
  for (size_t i = 0; i < k->count; i++) {
    uint64_t slot = tags[i] & mask;
    for (; places[slot] >= 0; slot = (slot + 1) & mask) {
      size_t other = (size_t)places[slot];
      if (tags[other] != tags[i])
        continue;
      struct text one = key_of(k, i), two = key_of(k, other);
      if (one.size == two.size && !memcmp(one.at, two.at, one.size))
        return 1;
    }
    places[slot] = (int32_t)i;
  }
  return 0;
}

static void enter(struct table *t, uint32_t tag, int32_t row)
{
  uint64_t slot = tag & t->mask;
  while (t->tags[slot] != FREE)
    slot = (slot + 1) & t->mask;
  t->tags[slot] = tag;
  t->rows[slot] = row;
}

/* Enter keys with the rows from `first` on, if none is here. The table has room.
 *
 * Returns 0 when they are entered, and -1, with nothing entered, if two are equal or without memory. Otherwise
 * a number of `suspects`, pairs of a key's number and a row of another block with an equal tag: nothing is
 * entered, and the caller compares the keys. If all differ it calls again with `are_new`.
 */
int64_t packed_enter(struct table *t, const struct keys *k, int64_t (*hash)(const void *, ptrdiff_t),
                     int32_t first, int are_new, int32_t *suspects, int64_t limit)
{
  uint64_t mask = 1;
  while (mask < 2 * k->count)
    mask *= 2;
  uint32_t *tags = malloc(k->count * sizeof *tags + mask * sizeof(int32_t));
  if (!tags)
    return -1;
  for (size_t i = 0; i < k->count; i++) {
    struct text key = key_of(k, i);
    uint32_t tag = (uint32_t)hash(key.at, (ptrdiff_t)key.size);
    tags[i] = tag ? tag : 1;
  }
  int64_t found = 0;
  if (!are_new) {
    if (is_any_twice(k, tags, (int32_t *)(tags + k->count), mask - 1))
      found = -1;
    for (size_t i = 0; i < k->count && found >= 0; i++) {
      if (i + FAR < k->count)
        __builtin_prefetch(&t->tags[tags[i + FAR] & t->mask]);
      for (uint64_t slot = tags[i] & t->mask; t->tags[slot] != FREE; slot = (slot + 1) & t->mask) {
        if (t->tags[slot] != tags[i] || t->rows[slot] < 0)
          continue;
        if (found == limit) {
          free(tags);
          return found;
        }
        suspects[2 * found] = (int32_t)i;
        suspects[2 * found++ + 1] = t->rows[slot];
      }
    }
  }
  for (size_t i = 0; i < k->count && !found; i++) {
    if (i + FAR < k->count)
      __builtin_prefetch(&t->rows[tags[i + FAR] & t->mask], 1);
    enter(t, tags[i], first + (int32_t)i);
  }
  free(tags);
  return found;
}

/* Enter what is in some slots of another table and was not removed. */
void packed_move(struct table *to, const uint32_t *tags, const int32_t *rows, uint64_t count)
{
  for (uint64_t i = 0; i < count; i++)
    if (tags[i] != FREE && rows[i] >= 0)
      enter(to, tags[i], rows[i]);
}
