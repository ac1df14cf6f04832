/* Digests of samples, as engine/dataset/sample.py and engine/dataset/blocks.py explain them.
 *
 * BLAKE2b (RFC 7693) of 16 bytes without a key. From the interpreter, a call for each sample costs three times
 * as much as the digest of a small one. Four texts are taken in at once where the processor has registers for
 * that (AVX2 or AVX-512VL of x86-64): each register then has the same word of all four.
 */
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "block.h"

enum { CHUNK = 128, HEADER_BYTES = 25, DATA = 4, LANES = 4, WORDS = CHUNK / 8 };

#define PARAMETERS UINT64_C(0x01010010) /* digests of 16 bytes, no key */
static const uint64_t IV[8] = {
  UINT64_C(0x6A09E667F3BCC908), UINT64_C(0xBB67AE8584CAA73B), UINT64_C(0x3C6EF372FE94F82B),
  UINT64_C(0xA54FF53A5F1D36F1), UINT64_C(0x510E527FADE682D1), UINT64_C(0x9B05688C2B3E6C1F),
  UINT64_C(0x1F83D9ABFB41BD6B), UINT64_C(0x5BE0CD19137E2179)};

#define TURN(x, bits) (((x) >> (bits)) | ((x) << (64 - (bits))))
#define MIX(a, b, c, d, x, y)                                                                                  \
  do {                                                                                                         \
    a += b + x;                                                                                                \
    d = TURN(d ^ a, 32);                                                                                       \
    c += d;                                                                                                    \
    b = TURN(b ^ c, 24);                                                                                       \
    a += b + y;                                                                                                \
    d = TURN(d ^ a, 16);                                                                                       \
    c += d;                                                                                                    \
    b = TURN(b ^ c, 63);                                                                                       \
  } while (0)
#define ROUND(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15)                            \
  do {                                                                                                         \
    MIX(v0, v4, v8, v12, m[s0], m[s1]);                                                                        \
    MIX(v1, v5, v9, v13, m[s2], m[s3]);                                                                        \
    MIX(v2, v6, v10, v14, m[s4], m[s5]);                                                                       \
    MIX(v3, v7, v11, v15, m[s6], m[s7]);                                                                       \
    MIX(v0, v5, v10, v15, m[s8], m[s9]);                                                                       \
    MIX(v1, v6, v11, v12, m[s10], m[s11]);                                                                     \
    MIX(v2, v7, v8, v13, m[s12], m[s13]);                                                                      \
    MIX(v3, v4, v9, v14, m[s14], m[s15]);                                                                      \
  } while (0)

#define ALL_ROUNDS                                                                                             \
  ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);                                                 \
  ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);                                                 \
  ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4);                                                 \
  ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8);                                                 \
  ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13);                                                 \
  ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9);                                                 \
  ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11);                                                 \
  ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10);                                                 \
  ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5);                                                 \
  ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0);                                                 \
  ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);                                                 \
  ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3)

#define FOLD(h)                                                                                                \
  do {                                                                                                         \
    h[0] ^= v0 ^ v8;                                                                                           \
    h[1] ^= v1 ^ v9;                                                                                           \
    h[2] ^= v2 ^ v10;                                                                                          \
    h[3] ^= v3 ^ v11;                                                                                          \
    h[4] ^= v4 ^ v12;                                                                                          \
    h[5] ^= v5 ^ v13;                                                                                          \
    h[6] ^= v6 ^ v14;                                                                                          \
    h[7] ^= v7 ^ v15;                                                                                          \
  } while (0)

/* Take in one chunk; `taken` bytes of the text, this chunk included, were taken in then. */
static void take(uint64_t h[8], const uint8_t *chunk, uint64_t taken, uint64_t last)
{
  uint64_t m[16];
  memcpy(m, chunk, CHUNK);
  uint64_t v0 = h[0], v1 = h[1], v2 = h[2], v3 = h[3], v4 = h[4], v5 = h[5], v6 = h[6], v7 = h[7];
  uint64_t v8 = IV[0], v9 = IV[1], v10 = IV[2], v11 = IV[3], v12 = IV[4] ^ taken, v13 = IV[5], v14 = IV[6] ^ last,
           v15 = IV[7];
  ALL_ROUNDS;
  FOLD(h);
}

typedef uint64_t lanes __attribute__((vector_size(8 * LANES)));
typedef void take_four(lanes h[8], const uint8_t *const *chunks, uint64_t taken, uint64_t last);

#if defined(__x86_64__)
/* The same for one chunk of each of four texts, all of which are as long up to there. */
static inline __attribute__((always_inline)) void take_lanes(lanes h[8], const uint8_t *const *chunks,
                                                             uint64_t taken, uint64_t last)
{
  lanes m[WORDS], none = {0};
  for (size_t i = 0; i < WORDS; i++) {
    uint64_t words[LANES];
    for (size_t lane = 0; lane < LANES; lane++)
      memcpy(&words[lane], chunks[lane] + 8 * i, 8);
    memcpy(&m[i], words, sizeof words);
  }
  lanes v0 = h[0], v1 = h[1], v2 = h[2], v3 = h[3], v4 = h[4], v5 = h[5], v6 = h[6], v7 = h[7];
  lanes v8 = none + IV[0], v9 = none + IV[1], v10 = none + IV[2], v11 = none + IV[3], v12 = none + (IV[4] ^ taken),
        v13 = none + IV[5], v14 = none + (IV[6] ^ last), v15 = none + IV[7];
  ALL_ROUNDS;
  FOLD(h);
}

__attribute__((target("avx2"))) static void take_avx2(lanes h[8], const uint8_t *const *chunks, uint64_t taken,
                                                      uint64_t last)
{
  take_lanes(h, chunks, taken, last);
}

__attribute__((target("avx512f,avx512vl"))) static void take_avx512(lanes h[8], const uint8_t *const *chunks,
                                                                   uint64_t taken, uint64_t last)
{
  take_lanes(h, chunks, taken, last);
}

/* What this processor, and its operating system, can do; NULL if four at once would be no faster. */
static take_four *four_at_once(void)
{
  enum { AVX_STATE = 0x6, AVX512_STATE = 0xe6 };
  unsigned a, b, c, d, state, high;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE) || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
    return NULL;
  __asm__("xgetbv" : "=a"(state), "=d"(high) : "c"(0));
  if (b & bit_AVX512F && b & bit_AVX512VL && (state & AVX512_STATE) == AVX512_STATE)
    return take_avx512;
  return b & bit_AVX2 && (state & AVX_STATE) == AVX_STATE ? take_avx2 : NULL;
}
#else
static take_four *four_at_once(void) { return NULL; }
#endif

static take_four *take_all;                   /* asked for once: the question is slow on a virtual machine */
__attribute__((constructor)) static void choose(void) { take_all = four_at_once(); }

struct text { uint64_t h[8], taken; size_t waiting; uint8_t chunk[CHUNK]; };

/* A text that was begun, and what follows. */
struct item { struct text text; const uint8_t *at; size_t size; };

static void begin(struct item *one, struct column rest)
{
  *one = (struct item){.at = rest.at, .size = rest.size};
  memcpy(one->text.h, IV, sizeof IV);
  one->text.h[0] ^= PARAMETERS;
}

/* Add bytes; a full chunk waits until more follow, because the last one is taken in differently. */
static void add(struct text *t, const uint8_t *bytes, size_t size)
{
  while (size) {
    if (t->waiting == CHUNK) {
      t->taken += CHUNK;
      take(t->h, t->chunk, t->taken, 0);
      t->waiting = 0;
    }
    size_t some = CHUNK - t->waiting < size ? CHUNK - t->waiting : size;
    memcpy(t->chunk + t->waiting, bytes, some);
    t->waiting += some;
    bytes += some;
    size -= some;
  }
}

/* Add of what follows as much as a chunk has room for; how many full chunks may be taken in then. */
static size_t full_chunks(struct item *one)
{
  size_t room = CHUNK - one->text.waiting, some = room < one->size ? room : one->size;
  add(&one->text, one->at, some);
  one->at += some;
  one->size -= some;
  return one->size ? 1 + (one->size - 1) / CHUNK : 0;
}

/* Take in what four texts have in common, full chunks only. */
static void take_common(struct item items[LANES])
{
  size_t common = SIZE_MAX;
  for (size_t lane = 0; lane < LANES; lane++) {
    size_t chunks = full_chunks(&items[lane]);
    common = items[lane].text.taken != items[0].text.taken ? 0 : chunks < common ? chunks : common;
  }
  lanes h[8];
  const uint8_t *chunks[LANES];
  for (size_t lane = 0; common && lane < LANES; lane++) {
    chunks[lane] = items[lane].text.chunk;
    for (size_t i = 0; i < 8; i++)
      h[i][lane] = items[lane].text.h[i];
  }
  for (size_t i = 0; i < common; i++) {
    take_all(h, chunks, items[0].text.taken + (i + 1) * CHUNK, 0);
    for (size_t lane = 0; lane < LANES; lane++)
      chunks[lane] = i ? chunks[lane] + CHUNK : items[lane].at;
  }
  for (size_t lane = 0; common && lane < LANES; lane++) {
    struct item *one = &items[lane];
    for (size_t i = 0; i < 8; i++)
      one->text.h[i] = h[i][lane];
    one->text.taken += common * CHUNK;
    one->text.waiting = 0;
    one->at = chunks[lane];
    one->size -= (common - 1) * CHUNK;
  }
}

/* Write the digests of up to four texts. */
static void finish(struct item *items, size_t count, uint8_t *digests)
{
  if (take_all && count == LANES)
    take_common(items);
  for (size_t i = 0; i < count; i++) {
    struct text *t = &items[i].text;
    add(t, items[i].at, items[i].size);
    memset(t->chunk + t->waiting, 0, CHUNK - t->waiting);
    take(t->h, t->chunk, t->taken + t->waiting, ~UINT64_C(0));
    memcpy(digests + DIGEST_BYTES * i, t->h, DIGEST_BYTES);
  }
}

/* Write the digests of samples, one after the other. A head is header, writer and key. */
void digests_of_samples(uint64_t count, const uint8_t *const *heads, const uint64_t *head_sizes,
                        const uint8_t *const *payloads, const uint64_t *payload_sizes, uint8_t *digests)
{
  struct item items[LANES];
  for (uint64_t i = 0; i < count; i++) {
    struct item *one = &items[i % LANES];
    begin(one, (struct column){payloads[i], payload_sizes[i]});
    add(&one->text, heads[i], head_sizes[i]);
    if (i % LANES == LANES - 1 || i + 1 == count)
      finish(items, i % LANES + 1, digests + DIGEST_BYTES * (i - i % LANES));
  }
}

/* Write the digests of all samples of a block, one after the other; `data` has all that `b` names. False, and
 * not all are written, if a sample names a writer that the block does not have.
 */
int digests_of_block(const uint8_t *data, const struct block *b, uint64_t writers, uint8_t *digests)
{
  struct item items[LANES];
  for (size_t i = 0; i < b->count; i++) {
    struct column key = column_of(data, b->keys, b->key_size, b->key_ends, i);
    struct column payload = column_of(data, b->payloads, b->payload_size, b->payload_ends, i);
    uint16_t writer = 0;
    if (b->writer_of)
      memcpy(&writer, data + b->writer_of + 2 * i, sizeof writer);
    if (writer >= writers)
      return 0;
    uint32_t key_size = (uint32_t)key.size, payload_size = (uint32_t)payload.size;
    struct item *one = &items[i % LANES];
    begin(one, payload);
    uint8_t *header = one->text.chunk;
    memcpy(header, data + b->times + 8 * i, 8);
    if (b->sequences)
      memcpy(header + 8, data + b->sequences + 8 * i, 8);
    header[16] = b->statuses ? data[b->statuses + i] : DATA;
    memcpy(header + 17, &key_size, 4);
    memcpy(header + 21, &payload_size, 4);
    memcpy(header + HEADER_BYTES, data + b->writers + WRITER_BYTES * (size_t)writer, WRITER_BYTES);
    one->text.waiting = HEADER_BYTES + WRITER_BYTES;
    add(&one->text, key.at, key.size);
    if (i % LANES == LANES - 1 || i + 1 == b->count)
      finish(items, i % LANES + 1, digests + DIGEST_BYTES * (i - i % LANES));
  }
  return 1;
}
