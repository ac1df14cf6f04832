/* Drives the ring of engine/native/ring.c as Cyclone DDS does, without it: WRITERS threads fill it, one thread
 * drains it. Ends with 0 when every record of each writer came once, whole and in order.
 *
 * usage: driver RECORDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <sched.h>

#include "ring.c"

enum { WRITERS = 3, CAPACITY = 1 << 18, LIMIT = 4000, MOST_BYTES = 200, EVERY_LARGE = 1000 };

static struct ring ring;
static _Alignas(8) uint8_t buffer[CAPACITY];
static uint64_t records;
static atomic_uint_fast64_t wakes, retained;

static int wake(int32_t guard, bool value)
{
  atomic_fetch_add(&wakes, guard == 7 && value);
  return 0;
}

static void *retain(void *serdata)
{
  atomic_fetch_add(&retained, 1);
  return serdata;
}

static uint64_t size_of(uint64_t number)
{
  return number % EVERY_LARGE == 1 ? LARGE_BYTES + 1 : 8 + number * 7 % (MOST_BYTES - 8);
}

static void *write_all(void *which)
{
  struct writer writer = { { (uint64_t)(uintptr_t)which, ~(uint64_t)(uintptr_t)which }, true };
  static _Thread_local uint8_t data[LARGE_BYTES + 1];
  for (uint64_t number = 0; number < records; number++) {
    uint64_t key = writer.guid[0];
    struct sample sample = { .head = { .kind = WHOLE, .time = (int64_t)number, .status = number & 3 }, .data = data,
                             .size = size_of(number), .key = &key, .key_size = number % 2 ? 8 : 0 };
    memset(data, (int)(number & 255), sample.size);
    memcpy(data, &number, sizeof number);
    while (!ring_store(&ring, &writer, &sample, NULL))
      sched_yield();
  }
  ring_unregister_writer(&ring, &writer);
  return NULL;
}

static void fail(const char *what, uint64_t writer, uint64_t number)
{
  fprintf(stderr, "writer %llu, record %llu: %s\n", (unsigned long long)writer, (unsigned long long)number, what);
  exit(1);
}

/* Look at one record; `next` is the number that each writer's next one must have. Returns whether one ended. */
static bool look(const struct record *record, uint64_t *next)
{
  uint64_t writer = record->guid[0];
  if (writer < 1 || writer > WRITERS || record->guid[1] != ~writer)
    fail("a writer that there is not", writer, 0);
  uint64_t number = next[writer - 1]++;
  if (record->status == GONE) {
    if (number != records || record->size != 1)
      fail("it was gone too early", writer, number);
    return true;
  }
  uint64_t size = size_of(number), content;
  bool large = size + (number % 2 ? 8 : 0) > LARGE_BYTES;
  if (record->time != (int64_t)number || record->status != ((number & 3) | DATA | (large ? LARGE : 0)))
    fail("another time or status", writer, number);
  if (large) {
    ring.large_bytes_taken += size;
    ring.large_taken++;
    return false;
  }
  memcpy(&content, record->body, sizeof content);
  if (record->size != size || record->key_size != (number % 2 ? 8 : 0) || content != number)
    fail("another size or number", writer, number);
  for (uint64_t at = 8; at < size; at++)
    if (record->body[at] != (number & 255))
      fail("other content", writer, number);
  if (record->key_size && memcmp(record->body + size, &writer, 8) != 0)
    fail("another key", writer, number);
  return false;
}

int main(int count, char **arguments)
{
  records = count == 2 ? strtoull(arguments[1], NULL, 10) : 100000;
  if (ring_bytes() != sizeof ring)
    fail("another size of the ring", 0, 0);
  ring_open(&ring, NULL, buffer, CAPACITY, LIMIT, wake, 7, 8, retain);
  pthread_t threads[WRITERS];
  uint64_t next[WRITERS] = { 0 }, left = WRITERS;
  for (uint64_t at = 0; at < WRITERS; at++)
    pthread_create(&threads[at], NULL, write_all, (void *)(uintptr_t)(at + 1));
  while (left) {
    uint64_t head = ring_begin(&ring);
    uint64_t tail = ring.tail;
    if (tail == head)
      sched_yield();
    while (tail < head) {
      uint64_t offset = tail & (CAPACITY - 1);
      const struct record *record = (const struct record *)(buffer + offset);
      if (CAPACITY - offset < HEADER_BYTES || !record->total) {
        tail += CAPACITY - offset;
        ring_release(&ring, tail, 0);
        continue;
      }
      left -= look(record, next);
      tail += record->total;
      ring_release(&ring, tail, 1);
    }
  }
  for (uint64_t at = 0; at < WRITERS; at++)
    pthread_join(threads[at], NULL);
  if (ring.put != ring.taken || ring.head != ring.tail || ring.large_put != ring.large_taken || !wakes)
    fail("the counts do not fit", 0, 0);
  printf("%llu taken, %llu large, %llu refused, %llu wakes\n", (unsigned long long)ring.taken,
         (unsigned long long)retained, (unsigned long long)ring.rejected, (unsigned long long)wakes);
  return 0;
}
