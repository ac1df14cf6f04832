/* Computes the digests of blocks and weaves them, as engine/dataset/blocks.py and engine/dataset/sample_rows.py let the
 * library do it, without Python. What it reads, the test writes (`blocks_of_file`); it ends with 0 when all digests
 * are those of the file, and writes the woven block, its digests, and the places of the rows.
 *
 * usage: blocks FILE
 */
#include <stdio.h>
#include <stdlib.h>

#include "weave.c"

int digests_of_block(const uint8_t *data, const struct block *b, uint64_t writers, uint8_t *digests);
void digests_of_samples(uint64_t count, const uint8_t *const *heads, const uint64_t *head_sizes,
                        const uint8_t *const *payloads, const uint64_t *payload_sizes, uint8_t *digests);

static FILE *file;

static void *get(size_t size)
{
  void *found = malloc(size + 1);
  if (fread(found, 1, size, file) != size)
    exit(3);
  return found;
}

static void get_block(struct source *s, uint64_t data_bytes, uint64_t known)
{
  struct block *layout = get(sizeof *layout);
  s->block = *layout;
  s->data = get(data_bytes);
  s->digests = get(DIGEST_BYTES * s->block.count);
  s->writers = get(sizeof(int32_t) * known);
  s->block.key_ends = s->block.key_size < 0 ? get(8 * (s->block.count + 1)) : NULL;
  s->block.payload_ends = s->block.payload_size < 0 ? get(8 * (s->block.count + 1)) : NULL;
  uint8_t *made = malloc(DIGEST_BYTES * s->block.count);
  if (!digests_of_block(s->data, &s->block, known, made) || memcmp(made, s->digests, DIGEST_BYTES * s->block.count))
    exit(4);
  free(layout);
  free(made);
}

/* Of all payloads of a block at once, without heads: equal texts in both orders have equal digests. */
static void check_samples(const struct source *s)
{
  uint64_t count = s->block.count, *sizes = calloc(2 * count, 8), *none = calloc(2 * count, 8);
  const uint8_t **texts = calloc(2 * count, sizeof *texts);
  uint8_t *made = malloc(2 * DIGEST_BYTES * count), *alone = malloc(DIGEST_BYTES);
  for (size_t i = 0; i < 2 * count; i++) {
    struct column text = payload_at(s, i < count ? i : 2 * count - 1 - i);
    texts[i] = text.at;
    sizes[i] = text.size;
  }
  digests_of_samples(2 * count, texts, none, texts, sizes, made);
  for (size_t i = 0; i < 2 * count; i++) {
    digests_of_samples(1, texts + i, none, texts + i, sizes + i, alone);
    if (memcmp(alone, made + DIGEST_BYTES * i, DIGEST_BYTES))
      exit(5);
  }
}

int main(int argc, char **argv)
{
  if (argc != 2 || !(file = fopen(argv[1], "rb")))
    return 2;
  uint64_t *head = get(4 * 8), blocks = head[0], count = head[1], known_count = head[2], limit = head[3];
  struct source *sources = calloc(blocks, sizeof *sources);
  for (uint64_t i = 0; i < blocks; i++) {
    uint64_t *sizes = get(2 * 8);
    get_block(&sources[i], sizes[0], sizes[1]);
    check_samples(&sources[i]);
  }
  int32_t *rows = get(sizeof(int32_t) * count), *numbers = malloc(sizeof(int32_t) * known_count);
  uint8_t *known = get(WRITER_BYTES * known_count);
  memset(numbers, -1, sizeof(int32_t) * known_count);
  struct plan plan;
  weave_plan(sources, rows, count, limit, numbers, &plan);
  uint8_t *to = calloc(plan.size, 1), *digests = calloc(count, DIGEST_BYTES);
  weave(sources, rows, &plan, numbers, known, known_count, to, digests);
  fwrite(to, 1, plan.size, stdout);
  fwrite(digests, DIGEST_BYTES, plan.count, stdout);
  int64_t *times = calloc(count, 8);
  weave_places(sources, rows, count, NULL, NULL, times, digests);
  fwrite(times, 8, count, stdout);
  fwrite(digests, DIGEST_BYTES, count, stdout);
  return plan.oldest_ns <= plan.newest_ns && plan.count == count ? 0 : 1;
}
