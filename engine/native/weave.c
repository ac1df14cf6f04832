/* Samples of many blocks as one block or as objects, as engine/dataset/sample_rows.py explains it. All of them are
 * plain writes.
 */
#include <string.h>

#include "block.h"

enum { HEAD_BYTES = 5, PLACE_BITS = 16, PLACE = 0xFFFF, SEQUENCES = 1, KEY_LENGTHS = 4, PAYLOAD_LENGTHS = 8, DATA = 4 };

/* A block, its digests, and for each of its writers which of the known writers it is. */
struct source { struct block block; const uint8_t *data, *digests; const int32_t *writers; };

/* What a block will have; `key_size` and `payload_size` are -1 if they differ. */
struct plan {
  uint64_t count, writers, has_sequences, key_bytes, payload_bytes, size;
  int64_t key_size, payload_size, oldest_ns, newest_ns;
};

static struct column key_at(const struct source *s, size_t at)
{
  return column_of(s->data, s->block.keys, s->block.key_size, s->block.key_ends, at);
}

static struct column payload_at(const struct source *s, size_t at)
{
  return column_of(s->data, s->block.payloads, s->block.payload_size, s->block.payload_ends, at);
}

static int32_t writer_at(const struct source *s, size_t at)
{
  uint16_t writer = 0;
  if (s->block.writer_of)
    memcpy(&writer, s->data + s->block.writer_of + 2 * at, sizeof writer);
  return s->writers[writer];
}

static int64_t time_at(const struct source *s, size_t at)
{
  int64_t time_ns;
  memcpy(&time_ns, s->data + s->block.times + 8 * at, sizeof time_ns);
  return time_ns;
}

/* Plan a block of the first rows, of at most `limit` bytes of keys and payloads unless the first has more.
 * `numbers` has -1 for each known writer, and its number in the block afterwards.
 */
void weave_plan(const struct source *sources, const int32_t *rows, uint64_t count, uint64_t limit,
                int32_t *numbers, struct plan *p)
{
  *p = (struct plan){.oldest_ns = INT64_MAX, .newest_ns = INT64_MIN};
  for (size_t i = 0; i < count; i++) {
    const struct source *s = &sources[rows[i] >> PLACE_BITS];
    size_t at = (size_t)(rows[i] & PLACE);
    int64_t key = (int64_t)key_at(s, at).size, payload = (int64_t)payload_at(s, at).size;
    if (i && p->key_bytes + p->payload_bytes + (uint64_t)(key + payload) > limit)
      break;
    p->key_size = i && p->key_size != key ? -1 : key;
    p->payload_size = i && p->payload_size != payload ? -1 : payload;
    p->key_bytes += (uint64_t)key;
    p->payload_bytes += (uint64_t)payload;
    int32_t writer = writer_at(s, at);
    if (numbers[writer] < 0)
      numbers[writer] = (int32_t)p->writers++;
    p->has_sequences |= s->block.sequences != 0;
    int64_t time_ns = time_at(s, at);
    p->oldest_ns = time_ns < p->oldest_ns ? time_ns : p->oldest_ns;
    p->newest_ns = time_ns > p->newest_ns ? time_ns : p->newest_ns;
    p->count++;
  }
  p->size = HEAD_BYTES + WRITER_BYTES * p->writers + p->key_bytes + p->payload_bytes +
            p->count * (8 + (p->writers > 1 ? 2 : 0) + (p->has_sequences ? 8 : 0)) +
            4 * ((p->key_size < 0 ? p->count : 1) + (p->payload_size < 0 ? p->count : 1));
}

/* Write the lengths of keys or payloads, or the only one; return where they end. */
static uint8_t *put_lengths(uint8_t *to, const struct source *sources, const int32_t *rows, uint64_t count,
                            int64_t size, struct column (*column)(const struct source *, size_t))
{
  for (size_t i = 0; i < (size < 0 ? count : 1); i++, to += 4) {
    uint32_t length = (uint32_t)column(&sources[rows[i] >> PLACE_BITS], (size_t)(rows[i] & PLACE)).size;
    memcpy(to, &length, sizeof length);
  }
  return to;
}

/* Write the planned block and its digests; `known` has the known writers, one after the other. */
void weave(const struct source *sources, const int32_t *rows, const struct plan *p, const int32_t *numbers,
           const uint8_t *known, uint64_t known_count, uint8_t *to, uint8_t *digests)
{
  uint16_t head[2] = {(uint16_t)p->count, (uint16_t)p->writers};
  memcpy(to, head, sizeof head);
  to[4] = (uint8_t)((p->has_sequences ? SEQUENCES : 0) | (p->key_size < 0 ? KEY_LENGTHS : 0) |
                    (p->payload_size < 0 ? PAYLOAD_LENGTHS : 0));
  to += HEAD_BYTES;
  for (size_t i = 0; i < known_count; i++)
    if (numbers[i] >= 0)
      memcpy(to + WRITER_BYTES * (size_t)numbers[i], known + WRITER_BYTES * i, WRITER_BYTES);
  uint8_t *times = to + WRITER_BYTES * p->writers;
  uint8_t *writers = times + 8 * p->count;
  uint8_t *sequences = writers + (p->writers > 1 ? 2 * p->count : 0);
  uint8_t *lengths = sequences + (p->has_sequences ? 8 * p->count : 0);
  lengths = put_lengths(lengths, sources, rows, p->count, p->key_size, key_at);
  uint8_t *keys = put_lengths(lengths, sources, rows, p->count, p->payload_size, payload_at);
  uint8_t *payloads = keys + p->key_bytes;
  for (size_t i = 0; i < p->count; i++) {
    const struct source *s = &sources[rows[i] >> PLACE_BITS];
    size_t at = (size_t)(rows[i] & PLACE);
    memcpy(times + 8 * i, s->data + s->block.times + 8 * at, 8);
    memcpy(digests + DIGEST_BYTES * i, s->digests + DIGEST_BYTES * at, DIGEST_BYTES);
    uint16_t writer = (uint16_t)numbers[writer_at(s, at)];
    if (p->writers > 1)
      memcpy(writers + 2 * i, &writer, sizeof writer);
    if (s->block.sequences)
      memcpy(sequences + 8 * i, s->data + s->block.sequences + 8 * at, 8);
    struct column key = key_at(s, at), payload = payload_at(s, at);
    memcpy(keys, key.at, key.size);
    memcpy(payloads, payload.at, payload.size);
    keys += key.size;
    payloads += payload.size;
  }
}

/* Write the source times and digests of samples; those of row ~i below zero are the i-th of `others`. */
void weave_places(const struct source *sources, const int32_t *rows, uint64_t count, const int64_t *other_times,
                  const uint8_t *other_digests, int64_t *times, uint8_t *digests)
{
  for (size_t i = 0; i < count; i++) {
    const struct source *s = &sources[rows[i] < 0 ? 0 : rows[i] >> PLACE_BITS];
    size_t at = (size_t)(rows[i] < 0 ? ~rows[i] : rows[i] & PLACE);
    times[i] = rows[i] < 0 ? other_times[at] : time_at(s, at);
    memcpy(digests + DIGEST_BYTES * i, (rows[i] < 0 ? other_digests : s->digests) + DIGEST_BYTES * at,
           DIGEST_BYTES);
  }
}

/* Functions of Python, all of its stable interface, whose addresses it tells itself. */
struct python {
  void *(*list_new)(ptrdiff_t);
  void *(*list_item)(void *, ptrdiff_t);
  int (*list_set)(void *, ptrdiff_t, void *);
  void *(*alloc)(void *, ptrdiff_t);
  int (*tuple_set)(void *, ptrdiff_t, void *);
  void *(*bytes)(const void *, ptrdiff_t);
  void *(*signed_number)(long long);
  void *(*unsigned_number)(unsigned long long);
  void (*keep)(void *);
  void (*release)(void *);
};

static void *sample_of(const struct python *py, void *type, void *writers, const struct source *s, size_t at)
{
  enum { FIELDS = 7 };
  uint64_t sequence = 0;
  if (s->block.sequences)
    memcpy(&sequence, s->data + s->block.sequences + 8 * at, sizeof sequence);
  void *sample = py->alloc(type, FIELDS), *writer = py->list_item(writers, writer_at(s, at));
  if (!sample || !writer)
    return NULL;
  py->keep(writer);
  struct column key = key_at(s, at), payload = payload_at(s, at);
  void *fields[FIELDS] = {
    py->signed_number(time_at(s, at)), writer,
    py->unsigned_number(sequence),     py->bytes(s->digests + DIGEST_BYTES * at, DIGEST_BYTES),
    py->signed_number(DATA),           py->bytes(key.at, (ptrdiff_t)key.size),
    py->bytes(payload.at, (ptrdiff_t)payload.size)};
  int is_whole = 1;
  for (int i = 0; i < FIELDS; i++) {
    is_whole &= fields[i] != NULL;
    py->tuple_set(sample, i, fields[i]);
  }
  if (is_whole)
    return sample;
  py->release(sample);
  return NULL;
}

/* Return a new list of objects of a type of tuples; rows below zero name one of `objects`. NULL, and Python
 * knows the error, without memory.
 */
void *weave_samples(const struct python *py, void *type, void *writers, void *objects,
                    const struct source *sources, const int32_t *rows, uint64_t count)
{
  void *list = py->list_new((ptrdiff_t)count);
  for (size_t i = 0; list && i < count; i++) {
    void *sample;
    if (rows[i] < 0) {
      if ((sample = py->list_item(objects, ~rows[i])))
        py->keep(sample);
    } else {
      sample = sample_of(py, type, writers, &sources[rows[i] >> PLACE_BITS], (size_t)(rows[i] & PLACE));
    }
    if (!sample) {
      py->release(list);
      return NULL;
    }
    py->list_set(list, (ptrdiff_t)i, sample);
  }
  return list;
}
