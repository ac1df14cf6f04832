/* The store function of a capturing reader cache, and the functions beside it.
 *
 * They run on Cyclone's receive threads. In Python each call would have to wait for the interpreter lock, and
 * capture would stop whenever Python works. So these few lines are machine code; `ring.py` carries them,
 * compiled by `make_ring.py`, and explains the layout.
 *
 * No function here refers to any symbol: what they call is given as an address in the ring.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DATA = 4, GONE = 8, LARGE = 16, HEADER_BYTES = 40, LARGE_BYTES = 32768, GONE_RESERVE = 65536 };

struct ring {
  const void *ops;                                       /* struct dds_rhc begins with this */
  uint8_t *buffer;
  uint64_t capacity;                                     /* bytes, a power of two */
  uint64_t limit;                                        /* records */
  void *(*copy)(void *, const void *, size_t);           /* memcpy */
  int (*lock)(void *);                                   /* pthread_mutex_lock */
  int (*unlock)(void *);                                 /* pthread_mutex_unlock */
  int (*wake)(int32_t, bool);                            /* dds_set_guardcondition */
  void *(*retain)(void *);                               /* ddsi_serdata_ref */
  int32_t guard;
  uint32_t signalled;
  uint64_t head, put, large_put;                         /* written under the lock */
  uint64_t rejected, unreported;
  uint64_t tail, taken, large_taken;                     /* written by the one who drains */
  uint64_t mutex[16];
};

struct writer { uint64_t guid[2]; bool auto_dispose; };

struct serdata {                                         /* ddspy_serdata of the wheel */
  uint8_t before_kind[16];
  int32_t kind;
  uint8_t before_time[12];
  int64_t time;
  uint32_t status;
  uint8_t before_data[20];
  const void *data;
  uint64_t size;
  const void *key;
  uint64_t key_size;
};

struct record {
  uint32_t total, status;                                /* a total of 0: go on at the begin of the buffer */
  int64_t time;
  uint64_t guid[2];
  uint32_t size, key_size;
  uint8_t body[];
};

/* A place for a record of `total` bytes, or NULL. `kept` bytes of the buffer stay free. */
static inline struct record *place(struct ring *r, uint64_t total, uint64_t kept)
{
  uint64_t tail = __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE);
  uint64_t offset = r->head & (r->capacity - 1);
  uint64_t skip = offset + total > r->capacity ? r->capacity - offset : 0;
  if (r->head + skip + total - tail > r->capacity - kept)
    return NULL;
  if (skip) {
    ((struct record *)(r->buffer + offset))->total = 0;
    r->head += skip;
    offset = 0;
  }
  return (struct record *)(r->buffer + offset);
}

static inline void publish(struct ring *r, uint64_t total)
{
  r->put++;
  __atomic_store_n(&r->head, r->head + total, __ATOMIC_RELEASE);
  bool sleeping = __atomic_exchange_n(&r->signalled, 1, __ATOMIC_SEQ_CST) == 0;
  r->unlock(r->mutex);
  if (sleeping)
    r->wake(r->guard, true);
}

bool ring_store(struct ring *r, const struct writer *w, struct serdata *s, void *instance)
{
  (void)instance;
  bool large = s->size + s->key_size > LARGE_BYTES;
  uint64_t body = large ? 8 : s->size + s->key_size;
  uint64_t total = (HEADER_BYTES + body + 7) & ~(uint64_t)7;
  r->lock(r->mutex);
  uint64_t waiting = r->put - __atomic_load_n(&r->taken, __ATOMIC_ACQUIRE);
  uint64_t large_waiting = r->large_put - __atomic_load_n(&r->large_taken, __ATOMIC_ACQUIRE);
  struct record *record = NULL;
  if (waiting < r->limit && !(large && large_waiting && large_waiting + s->size > r->capacity))
    record = place(r, total, GONE_RESERVE);
  if (!record) {
    r->rejected++;
    r->unlock(r->mutex);
    return false;
  }
  record->total = (uint32_t)total;
  record->status = (s->status & 3) | (s->kind & 2 ? DATA : 0) | (large ? LARGE : 0);
  record->time = s->time;
  record->guid[0] = w->guid[0];
  record->guid[1] = w->guid[1];
  if (large) {
    record->size = 8;
    record->key_size = 0;
    *(void **)record->body = r->retain(s);
    r->large_put += s->size;
  } else {
    record->size = (uint32_t)s->size;
    record->key_size = (uint32_t)s->key_size;
    r->copy(record->body, s->data, s->size);
    r->copy(record->body + s->size, s->key, s->key_size);
  }
  publish(r, total);
  return true;
}

void ring_unregister_writer(struct ring *r, const struct writer *w)
{
  r->lock(r->mutex);
  struct record *record = place(r, HEADER_BYTES + 8, 0);
  if (!record) {
    r->unreported++;
    r->unlock(r->mutex);
    return;
  }
  record->total = HEADER_BYTES + 8;
  record->status = GONE;
  record->time = 0;
  record->guid[0] = w->guid[0];
  record->guid[1] = w->guid[1];
  record->size = w->auto_dispose ? 1 : 0;
  record->key_size = 0;
  record->body[0] = 1;
  publish(r, HEADER_BYTES + 8);
}

/* Before draining: from now on a new record wakes again. Returns the head. */
uint64_t ring_begin(struct ring *r)
{
  __atomic_exchange_n(&r->signalled, 0, __ATOMIC_SEQ_CST);
  return __atomic_load_n(&r->head, __ATOMIC_ACQUIRE);
}

int32_t ring_none(void) { return 0; }

bool ring_yes(void) { return true; }
