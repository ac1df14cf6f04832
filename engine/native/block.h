/* The columns of a block, as engine/dataset/blocks.py explains them. */
#ifndef BLOCK_H
#define BLOCK_H

#include <stddef.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "this library is for little-endian processors"
#endif

enum { DIGEST_BYTES = 16, WRITER_BYTES = 16 };

/* Where the columns of a block are, in bytes from its begin; 0 for a column that it does not have. Keys and
 * payloads have one size, or -1 and where each of them ends, after where the first one begins.
 */
struct block {
  uint64_t count, writers, times, writer_of, sequences, statuses, keys, payloads;
  int64_t key_size, payload_size;
  const uint64_t *key_ends, *payload_ends;
};

struct column { const uint8_t *at; size_t size; };

static inline struct column column_of(const uint8_t *data, uint64_t begin, int64_t size, const uint64_t *ends, size_t i)
{
  if (size < 0)
    return (struct column){data + ends[i], ends[i + 1] - ends[i]};
  return (struct column){data + begin + i * (uint64_t)size, (size_t)size};
}

#endif
