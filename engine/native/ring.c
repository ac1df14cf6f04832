/* The store function of a capturing reader cache, and the functions beside it.
 *
 * They run on Cyclone's receive threads. In Python each call would have to wait for the interpreter lock, and
 * capture would stop whenever Python works. `hatch_build.py` compiles this file when the project is installed;
 * `ring.py` explains the queue, and finds these functions by name in the library.
 *
 * Functions of Cyclone DDS come as addresses, since the library of Cyclone DDS is chosen at run time.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cyclone.h"

enum { DATA = 4, GONE = 8, LARGE = 16, UNTIMED = 32, HEADER_BYTES = 40, LARGE_BYTES = 32768, GONE_RESERVE = 65536,
       SMALL_BYTES = 1536, /* the mean record of a queue whose records are small */
       LARGE_WAITING = 2 /* that may wait whatever their size: one is drained, one comes */ };

struct ring {
  /* ring.py has this first part. */
  const void *ops;                            /* struct dds_rhc begins with this */
  uint64_t capacity;                          /* bytes, a power of two */
  uint64_t limit;                             /* records */
  _Atomic uint64_t head;                      /* bytes; this line is written under the mutex */
  uint64_t put, rejected, unreported, large_put, large_bytes_put;
  _Atomic uint64_t tail, taken, large_taken;  /* written by the one who drains */
  _Atomic uint64_t large_bytes_taken;
  /* The rest is known here only. */
  uint8_t *buffer;
  int (*wake)(int32_t, bool);                 /* dds_set_guardcondition */
  void *(*retain)(void *);                    /* ddsi_serdata_ref */
  int32_t guard, urgent;                      /* set for the first record after a look; for many that are not small */
  atomic_bool signalled, urged;
  pthread_mutex_t mutex;
};

struct writer { uint64_t guid[2]; bool auto_dispose; };

struct record {
  uint32_t total, status;                     /* a total of 0: go on at the begin of the buffer */
  int64_t time;
  uint64_t guid[2];
  uint32_t size, key_size;
  uint8_t body[];
};

_Static_assert(offsetof(struct record, body) == HEADER_BYTES, "ring.py has the same header");

/* The digest of all files of the library when it was compiled: one of other files is refused. */
const char *native_source(void) { return NATIVE_SOURCE; }

uint64_t ring_bytes(void) { return sizeof(struct ring); }

/* Make a ring of `ring_bytes` bytes that are 0. It needs no closing: a mutex of Linux holds nothing. */
void ring_open(struct ring *r, const void *ops, void *buffer, uint64_t capacity, uint64_t limit,
               int (*wake)(int32_t, bool), int32_t guard, int32_t urgent, void *(*retain)(void *))
{
  r->ops = ops;
  r->capacity = capacity;
  r->limit = limit;
  r->buffer = buffer;
  r->wake = wake;
  r->guard = guard;
  r->urgent = urgent;
  r->retain = retain;
  pthread_mutex_init(&r->mutex, NULL);
}

/* A place for a record of `total` bytes, or NULL. `kept` bytes of the buffer stay free. */
static struct record *place(struct ring *r, uint64_t total, uint64_t kept)
{
  uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
  uint64_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
  uint64_t offset = head & (r->capacity - 1);
  uint64_t skip = offset + total > r->capacity ? r->capacity - offset : 0;
  if (head + skip + total - tail > r->capacity - kept)
    return NULL;
  if (skip) {
    ((struct record *)(r->buffer + offset))->total = 0;
    atomic_store_explicit(&r->head, head + skip, memory_order_release);
    offset = 0;
  }
  return (struct record *)(r->buffer + offset);
}

/* Whether it is half full, unless the samples are small: those are cheaper for the one who drains if more of them come. */
static bool is_half_full(struct ring *r)
{
  uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
  uint64_t bytes = head - atomic_load_explicit(&r->tail, memory_order_relaxed);
  uint64_t waiting = r->put - atomic_load_explicit(&r->taken, memory_order_relaxed);
  uint64_t large = r->large_bytes_put - atomic_load_explicit(&r->large_bytes_taken, memory_order_relaxed);
  return 2 * large >= r->capacity || (2 * bytes >= r->capacity && bytes > waiting * SMALL_BYTES);
}

/* Show the record to the one who drains, end the lock, and wake who sleeps, or looks by the clock only. */
static void publish(struct ring *r, uint64_t total)
{
  uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
  r->put++;
  atomic_store_explicit(&r->head, head + total, memory_order_release);
  bool was_signalled = atomic_exchange(&r->signalled, true);
  bool urges = is_half_full(r) && !atomic_exchange(&r->urged, true);
  pthread_mutex_unlock(&r->mutex);
  if (!was_signalled)
    r->wake(r->guard, true);
  if (urges)
    r->wake(r->urgent, true);
}

bool ring_store(struct ring *r, const struct writer *w, struct sample *s, void *instance)
{
  (void)instance;
  bool large = s->size + s->key_size > LARGE_BYTES;
  /* Cyclone DDS gives the time 0 to a sample that came without one. */
  bool untimed = !s->head.time && s->received;
  uint64_t body = (large ? sizeof(void *) : s->size + s->key_size) + (untimed ? sizeof s->number : 0);
  uint64_t total = (HEADER_BYTES + body + 7) & ~(uint64_t)7;
  pthread_mutex_lock(&r->mutex);
  uint64_t waiting = r->put - atomic_load_explicit(&r->taken, memory_order_relaxed);
  uint64_t large_waiting = r->large_put - atomic_load_explicit(&r->large_taken, memory_order_relaxed);
  uint64_t bytes = r->large_bytes_put - atomic_load_explicit(&r->large_bytes_taken, memory_order_relaxed);
  struct record *record = NULL;
  if (waiting < r->limit && !(large && large_waiting >= LARGE_WAITING && bytes + s->size > r->capacity))
    record = place(r, total, GONE_RESERVE);
  if (!record) {
    r->rejected++;
    pthread_mutex_unlock(&r->mutex);
    return false;
  }
  record->total = (uint32_t)total;
  record->status = (s->head.status & 3) | (s->head.kind & WHOLE ? DATA : 0) | (large ? LARGE : 0) |
                   (untimed ? UNTIMED : 0);
  record->time = untimed ? s->received : s->head.time;
  memcpy(record->guid, w->guid, sizeof record->guid);
  if (large) {
    void *kept = r->retain(s);
    record->size = sizeof kept;
    record->key_size = 0;
    memcpy(record->body, &kept, sizeof kept);
    r->large_put++;
    r->large_bytes_put += s->size;
  } else {
    record->size = (uint32_t)s->size;
    record->key_size = (uint32_t)s->key_size;
    memcpy(record->body, s->data, s->size);
    if (s->key_size)
      memcpy(record->body + s->size, s->key, s->key_size);
  }
  if (untimed)
    memcpy(record->body + body - sizeof s->number, &s->number, sizeof s->number);
  publish(r, total);
  return true;
}

void ring_unregister_writer(struct ring *r, const struct writer *w)
{
  pthread_mutex_lock(&r->mutex);
  struct record *record = place(r, HEADER_BYTES + 8, 0);
  if (!record) {
    r->unreported++;
    pthread_mutex_unlock(&r->mutex);
    return;
  }
  record->total = HEADER_BYTES + 8;
  record->status = GONE;
  record->time = 0;
  memcpy(record->guid, w->guid, sizeof record->guid);
  record->size = w->auto_dispose ? 1 : 0;
  record->key_size = 0;
  record->body[0] = 1;
  publish(r, HEADER_BYTES + 8);
}

/* Before draining: from now on a new record wakes again. Returns the head. */
uint64_t ring_begin(struct ring *r)
{
  atomic_exchange(&r->signalled, false);
  atomic_exchange(&r->urged, false);
  return atomic_load_explicit(&r->head, memory_order_acquire);
}

/* After draining: `count` records were taken, and their bytes up to `tail` are free again. */
void ring_release(struct ring *r, uint64_t tail, uint64_t count)
{
  uint64_t taken = atomic_load_explicit(&r->taken, memory_order_relaxed);
  atomic_store_explicit(&r->taken, taken + count, memory_order_relaxed);
  atomic_store_explicit(&r->tail, tail, memory_order_release);
}

/* The other functions of a reader cache, which do nothing; here each takes whatever it is given. */
int32_t ring_none(void) { return 0; }

bool ring_yes(void) { return true; }
