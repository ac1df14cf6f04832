/* Prints a digest of the symbols of a set: the number of identities and of symbols are the arguments. Every
 * processor prints what numpy computes; then the set is taken out of its symbols again, which must empty them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "rateless.c"

int main(int argc, char **argv)
{
  if (argc != 3)
    return 2;
  size_t count = strtoull(argv[1], NULL, 10), length = strtoull(argv[2], NULL, 10);
  uint64_t *identities = calloc(count, 8), *states = calloc(count, 8), digest = 0;
  int64_t *at = calloc(count, 8), from = 0, *signs = calloc(length, 8);
  struct symbols all = { 0, (int64_t)length, calloc(length, 8), calloc(length, 8), calloc(length, 8) };
  uint64_t keys[3] = { 1, 2, 3 }, *found = calloc(length, 8);
  for (size_t i = 0; i < count; i++) {
    uint64_t sample[2] = { i, count - i };
    rateless_identities(sample, keys, 1, &identities[i]);
    states[i] = identities[i];
  }
  rateless_add(&all, identities, states, at, count);
  for (size_t i = 0; i < length; i++)
    digest = mix(digest ^ (uint64_t)all.counts[i]) + mix(all.sums[i]) + all.checks[i];
  printf("%016" PRIx64 "\n", digest);
  size_t taken = 0, some;
  do {
    from = 0;
    some = rateless_take_out(&all, &from, length - taken, found + taken, signs + taken);
    taken += some;
  } while (some && taken < length);
  for (size_t i = 0; i < length; i++)
    if (all.counts[i] || all.sums[i] || all.checks[i])
      return 1;
  return taken == count ? 0 : 1;
}
