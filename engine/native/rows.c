/* The rows of a group of a store, as verified blocks (engine/dataset/blocks.py), read ahead by a thread.
 *
 * To make objects of a million rows, and a block of the objects, takes Python seconds. `compiled_rows.py` calls
 * these functions, and brings the functions of SQLite as addresses: a second copy of SQLite in a process would
 * drop the locks of the first. A row that is not as expected ends the reading; Python finds out why.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ROW = 100, DONE = 101, INTEGER = 1, BLOB = 4, READ_ONLY_URI = 0x41, DIGEST_BYTES = 16, WRITER_BYTES = 16,
       HEAD_BYTES = 5, DATA = 4, ROWS = 4096, PAGE_BYTES = 448 << 10, ROW_BYTES = 1 << 20, AHEAD = 4,
       WRITER_SLOTS = 2 * ROWS, SEQUENCES = 1, STATUSES = 2, KEY_LENGTHS = 4, PAYLOAD_LENGTHS = 8 };

struct sqlite {                               /* compiled_rows.py has this order */
  int (*open)(const char *, void **, int, const char *);
  int (*prepare)(void *, const char *, int, void **, const char **);
  int (*bind)(void *, int, int64_t);
  int (*step)(void *);
  int (*type)(void *, int);
  int64_t (*integer)(void *, int);
  const void *(*blob)(void *, int);
  int (*size)(void *, int);
  int (*finalize)(void *);
  int (*close)(void *);
};

struct page {                                 /* compiled_rows.py has this part; a count of 0 ends the reading */
  uint64_t count, size;
  const uint8_t *data, *digests;
  int64_t oldest, newest;
  uint64_t sum[2];                            /* of the digests as numbers, modulo 2**128, high part first */
  uint64_t is_whole;                          /* at the end: no row was left out */
};

struct texts { uint8_t *bytes; size_t size, room; uint32_t lengths[ROWS]; };

struct rows {
  struct sqlite sqlite;
  char *uri, *query;
  int64_t group, commits;
  uint8_t valid;                              /* bits of a status that mean something */
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct page pages[AHEAD];
  uint64_t made, used;                        /* pages; the one that the caller looks at counts as used later */
  bool is_held, is_stopped;
  /* What the thread gathers for the next page. */
  size_t count, writers;
  int64_t times[ROWS];
  uint64_t sequences[ROWS];
  uint16_t writer_of[ROWS], slots[WRITER_SLOTS];
  uint8_t statuses[ROWS], digests[ROWS * DIGEST_BYTES], writer[ROWS * WRITER_BYTES];
  struct texts keys, payloads;
};

struct block {                                /* as in digests.c */
  uint64_t count, writers, times, writer_of, sequences, statuses, keys, payloads;
  int64_t key_size, payload_size;
  const uint64_t *key_ends, *payload_ends;
};
int digests_of_block(const uint8_t *data, const struct block *b, uint64_t writers, uint8_t *digests);

static bool add(struct texts *t, size_t at, const void *bytes, size_t size)
{
  if (t->size + size > t->room) {
    size_t room = 2 * (t->size + size);
    uint8_t *more = realloc(t->bytes, room);
    if (!more)
      return false;
    t->bytes = more;
    t->room = room;
  }
  if (size)
    memcpy(t->bytes + t->size, bytes, size);
  t->size += size;
  t->lengths[at] = (uint32_t)size;
  return true;
}

/* The number of a writer among those of the page; nearly always it is that of the row before. */
static uint16_t number_of(struct rows *r, const uint8_t *writer)
{
  if (r->count && !memcmp(r->writer + WRITER_BYTES * r->writer_of[r->count - 1], writer, WRITER_BYTES))
    return r->writer_of[r->count - 1];
  uint64_t hash = UINT64_C(14695981039346656037);
  for (size_t i = 0; i < WRITER_BYTES; i++)
    hash = (hash ^ writer[i]) * UINT64_C(1099511628211);
  size_t slot = (hash ^ hash >> 32) % WRITER_SLOTS;
  for (; r->slots[slot]; slot = (slot + 1) % WRITER_SLOTS)
    if (!memcmp(r->writer + WRITER_BYTES * (r->slots[slot] - 1u), writer, WRITER_BYTES))
      return r->slots[slot] - 1;
  memcpy(r->writer + WRITER_BYTES * r->writers, writer, WRITER_BYTES);
  r->slots[slot] = (uint16_t)++r->writers;
  return (uint16_t)(r->writers - 1);
}

static bool is_blob(struct rows *r, void *statement, int column, int size)
{
  return r->sqlite.type(statement, column) == BLOB && (size < 0 || r->sqlite.size(statement, column) == size);
}

/* Take a row: time, writer, sequence, digest, status, key, payload. False if it is not as expected. */
static bool take(struct rows *r, void *statement)
{
  struct sqlite *q = &r->sqlite;
  if (q->type(statement, 0) != INTEGER || q->type(statement, 2) != INTEGER || q->type(statement, 4) != INTEGER ||
      !is_blob(r, statement, 1, WRITER_BYTES) || !is_blob(r, statement, 3, DIGEST_BYTES) ||
      !is_blob(r, statement, 5, -1) || !is_blob(r, statement, 6, -1))
    return false;
  int64_t status = q->integer(statement, 4);
  int key = q->size(statement, 5), payload = q->size(statement, 6);
  if (status <= 0 || status & ~(int64_t)r->valid || key > ROW_BYTES || payload > ROW_BYTES)
    return false;
  const void *writer = q->blob(statement, 1), *digest = q->blob(statement, 3);
  if (!writer || !digest)
    return false;
  size_t at = r->count;
  r->times[at] = q->integer(statement, 0);
  r->sequences[at] = (uint64_t)q->integer(statement, 2);
  r->statuses[at] = (uint8_t)status;
  r->writer_of[at] = number_of(r, writer);
  memcpy(r->digests + DIGEST_BYTES * at, digest, DIGEST_BYTES);
  const void *key_bytes = q->blob(statement, 5), *payload_bytes = q->blob(statement, 6);
  if ((key && !key_bytes) || (payload && !payload_bytes))
    return false;
  if (!add(&r->keys, at, key_bytes, (size_t)key) || !add(&r->payloads, at, payload_bytes, (size_t)payload))
    return false;
  r->count++;
  return true;
}

static bool are_equal(const uint32_t *lengths, size_t count)
{
  for (size_t i = 1; i < count; i++)
    if (lengths[i] != lengths[0])
      return false;
  return true;
}

static uint8_t *put(uint8_t *to, const void *bytes, size_t size)
{
  memcpy(to, bytes, size);
  return to + size;
}

/* Write lengths and where texts end, from `begin` on; the size of each, -1 if they differ. */
static int64_t ends_of(const struct texts *t, size_t count, uint64_t begin, uint64_t *ends)
{
  ends[0] = begin;
  for (size_t i = 0; i < count; i++)
    ends[i + 1] = ends[i] + t->lengths[i];
  return are_equal(t->lengths, count) ? (int64_t)t->lengths[0] : -1;
}

static uint64_t big_endian(const uint8_t *bytes)
{
  uint64_t number = 0;
  for (size_t i = 0; i < 8; i++)
    number = number << 8 | bytes[i];
  return number;
}

static void sum_up(struct page *page)
{
  for (size_t i = 0; i < page->count; i++) {
    uint64_t low = big_endian(page->digests + DIGEST_BYTES * i + 8);
    page->sum[1] += low;
    page->sum[0] += big_endian(page->digests + DIGEST_BYTES * i) + (page->sum[1] < low);
  }
}

/* Make a page of what was gathered; false if a digest is wrong, or without memory. */
static bool finish(struct rows *r, struct page *page)
{
  size_t n = r->count;
  bool sequences = false, statuses = false;
  for (size_t i = 0; i < n; i++) {
    sequences |= r->sequences[i] != 0;
    statuses |= r->statuses[i] != DATA;
  }
  bool keys = !are_equal(r->keys.lengths, n), payloads = !are_equal(r->payloads.lengths, n);
  size_t size = HEAD_BYTES + WRITER_BYTES * r->writers + 8 * n + (r->writers > 1 ? 2 * n : 0) +
                (sequences ? 8 * n : 0) + (statuses ? n : 0) + 4 * (keys ? n : 1) + 4 * (payloads ? n : 1) +
                r->keys.size + r->payloads.size;
  uint8_t *data = malloc(size + n * DIGEST_BYTES);
  uint64_t *ends = malloc(2 * (n + 1) * sizeof *ends);
  uint8_t *computed = malloc(n * DIGEST_BYTES);
  bool is_right = data && ends && computed;
  if (is_right) {
    uint16_t head[2] = {(uint16_t)n, (uint16_t)r->writers};
    uint8_t *to = put(data, head, sizeof head);
    struct block b = {.count = n, .writers = HEAD_BYTES};
    *to++ = (uint8_t)((sequences ? SEQUENCES : 0) | (statuses ? STATUSES : 0) | (keys ? KEY_LENGTHS : 0) |
                      (payloads ? PAYLOAD_LENGTHS : 0));
    to = put(to, r->writer, WRITER_BYTES * r->writers);
    b.times = (uint64_t)(to - data);
    to = put(to, r->times, 8 * n);
    if (r->writers > 1) {
      b.writer_of = (uint64_t)(to - data);
      to = put(to, r->writer_of, 2 * n);
    }
    if (sequences) {
      b.sequences = (uint64_t)(to - data);
      to = put(to, r->sequences, 8 * n);
    }
    if (statuses) {
      b.statuses = (uint64_t)(to - data);
      to = put(to, r->statuses, n);
    }
    to = put(to, r->keys.lengths, 4 * (keys ? n : 1));
    to = put(to, r->payloads.lengths, 4 * (payloads ? n : 1));
    b.keys = (uint64_t)(to - data);
    to = put(to, r->keys.bytes ? r->keys.bytes : r->digests, r->keys.size);
    b.payloads = (uint64_t)(to - data);
    to = put(to, r->payloads.bytes ? r->payloads.bytes : r->digests, r->payloads.size);
    b.key_ends = ends;
    b.payload_ends = ends + n + 1;
    b.key_size = ends_of(&r->keys, n, b.keys, ends);
    b.payload_size = ends_of(&r->payloads, n, b.payloads, ends + n + 1);
    memcpy(to, r->digests, n * DIGEST_BYTES);
    is_right = digests_of_block(data, &b, r->writers, computed) && !memcmp(computed, to, n * DIGEST_BYTES);
    *page = (struct page){.count = n, .size = size, .data = data, .digests = to};
    page->oldest = page->newest = r->times[0];
    sum_up(page);
    for (size_t i = 1; i < n; i++) {
      page->oldest = r->times[i] < page->oldest ? r->times[i] : page->oldest;
      page->newest = r->times[i] > page->newest ? r->times[i] : page->newest;
    }
  }
  free(ends);
  free(computed);
  if (!is_right)
    free(data);
  r->count = r->writers = r->keys.size = r->payloads.size = 0;
  memset(r->slots, 0, sizeof r->slots);
  return is_right;
}

/* Hand over a page when there is a place for it; false if nobody wants more. */
static bool hand_over(struct rows *r, const struct page *page)
{
  pthread_mutex_lock(&r->mutex);
  while (!r->is_stopped && r->made - r->used == AHEAD)
    pthread_cond_wait(&r->changed, &r->mutex);
  bool is_wanted = !r->is_stopped;
  if (is_wanted)
    r->pages[r->made++ % AHEAD] = *page;
  pthread_cond_signal(&r->changed);
  pthread_mutex_unlock(&r->mutex);
  if (!is_wanted)
    free((void *)page->data);
  return is_wanted;
}

/* Read all rows; true if none was left out. */
static bool read_rows(struct rows *r, void *statement)
{
  struct page page;
  for (;;) {
    int code = r->sqlite.step(statement);
    if (code == ROW && !take(r, statement))
      return false;
    if (code != ROW && code != DONE)
      return false;
    bool is_full = r->count == ROWS || r->keys.size + r->payloads.size >= PAGE_BYTES;
    if (r->count && (is_full || code == DONE) && !(finish(r, &page) && hand_over(r, &page)))
      return false;
    if (code == DONE)
      return true;
  }
}

/* Run a statement that returns one number, or none; -1 if it cannot be run. */
static int64_t number(struct rows *r, void *database, const char *text)
{
  void *statement = NULL;
  int64_t result = -1;
  if (!r->sqlite.prepare(database, text, -1, &statement, NULL)) {
    int code = r->sqlite.step(statement);
    result = code == ROW ? r->sqlite.integer(statement, 0) : code == DONE ? 0 : -1;
  }
  r->sqlite.finalize(statement);
  return result;
}

static void *run(void *argument)
{
  struct rows *r = argument;
  void *database = NULL, *statement = NULL;
  bool is_whole = !r->sqlite.open(r->uri, &database, READ_ONLY_URI, NULL) && !number(r, database, "BEGIN") &&
                  number(r, database, "SELECT commits FROM node") == r->commits &&
                  !r->sqlite.prepare(database, r->query, -1, &statement, NULL) &&
                  !r->sqlite.bind(statement, 1, r->group) && read_rows(r, statement);
  r->sqlite.finalize(statement);
  r->sqlite.close(database);
  hand_over(r, &(struct page){.is_whole = is_whole});
  return NULL;
}

static void release(struct rows *r)
{
  while (r->used < r->made)
    free((void *)r->pages[r->used++ % AHEAD].data);
  pthread_cond_destroy(&r->changed);
  pthread_mutex_destroy(&r->mutex);
  free(r->keys.bytes);
  free(r->payloads.bytes);
  free(r->uri);
  free(r->query);
  free(r);
}

static char *copy_of(const char *text)
{
  size_t size = strlen(text) + 1;
  char *made = malloc(size);
  return made ? memcpy(made, text, size) : NULL;
}

/* Begin to read the rows of a group; NULL if the system refuses. `rows_close` ends it. */
struct rows *rows_open(const struct sqlite *sqlite, const char *uri, const char *query, int64_t group,
                       int64_t commits, uint8_t valid)
{
  struct rows *r = calloc(1, sizeof *r);
  if (!r)
    return NULL;
  r->sqlite = *sqlite;
  r->uri = copy_of(uri);
  r->query = copy_of(query);
  r->group = group;
  r->commits = commits;
  r->valid = valid;
  pthread_mutex_init(&r->mutex, NULL);
  pthread_cond_init(&r->changed, NULL);
  if (!r->uri || !r->query || pthread_create(&r->thread, NULL, run, r)) {
    release(r);
    return NULL;
  }
  return r;
}

/* Wait for the next page; it is valid until the next call. */
const struct page *rows_next(struct rows *r)
{
  pthread_mutex_lock(&r->mutex);
  if (r->is_held)
    free((void *)r->pages[r->used++ % AHEAD].data);
  r->is_held = true;
  pthread_cond_signal(&r->changed);
  while (r->made == r->used)
    pthread_cond_wait(&r->changed, &r->mutex);
  pthread_mutex_unlock(&r->mutex);
  return &r->pages[r->used % AHEAD];
}

void rows_close(struct rows *r)
{
  pthread_mutex_lock(&r->mutex);
  r->is_stopped = true;
  pthread_cond_signal(&r->changed);
  pthread_mutex_unlock(&r->mutex);
  pthread_join(r->thread, NULL);
  release(r);
}
