/* Identities of samples and the symbols of a set, as engine/dataset/rateless.py explains them.
 *
 * With numpy each step is a dozen calls, and a busy store thread takes the interpreter lock between any two of
 * them. The arithmetic is exact: every processor and numpy make the same symbols, so it must not be contracted.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

static const int64_t MAX_INDEX = INT64_C(1) << 40;
static const uint64_t LOW = UINT64_C(0xFFFFFFFF);

struct symbols { int64_t first, end; int64_t *counts; uint64_t *sums, *checks; };

static uint64_t mix(uint64_t word)
{
  word = (word ^ (word >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  word = (word ^ (word >> 27)) * UINT64_C(0x94D049BB133111EB);
  return word ^ (word >> 31);
}

static uint64_t checksum(uint64_t identity) { return mix(identity ^ UINT64_C(0xD6E8FEB86659FD93)) >> 32; }

/* The symbol that an identity falls into after the symbol `at`. */
static int64_t following(uint64_t *state, int64_t at)
{
  *state = mix(*state + UINT64_C(0x9E3779B97F4A7C15));
  double uniform = ((double)(*state >> 32) + 1.0) / 4294967296.0;
  double skip = ((double)at + 1.5) * (1.0 / sqrt(uniform) - 1.0);
  if (skip >= (double)(MAX_INDEX - at))
    return MAX_INDEX;
  int64_t whole = (int64_t)skip;
  whole += (double)whole < skip; /* rounded up, without a call */
  return at + (whole < 1 ? 1 : whole);
}

/* Put an identity `sign` times into the symbols that it falls into from `at` on; the first one beyond them. */
static int64_t put(const struct symbols *s, uint64_t identity, int64_t sign, uint64_t *state, int64_t at)
{
  uint64_t word = identity * (uint64_t)sign, check = checksum(identity) * (uint64_t)sign;
  for (; at < s->end; at = following(state, at)) {
    int64_t where = at - s->first;
    s->counts[where] += sign;
    s->sums[where] += word;
    s->checks[where] = (s->checks[where] + check) & LOW;
  }
  return at;
}

/* digests: two words of each sample; keys: three words that the salt and the group decide, the last one odd. */
void rateless_identities(const uint64_t *digests, const uint64_t *keys, size_t count, uint64_t *identities)
{
  for (size_t i = 0; i < count; i++)
    identities[i] = mix(mix(digests[2 * i] ^ keys[0]) + mix(digests[2 * i + 1] ^ keys[1]) * keys[2]);
}

/* Add identities to the symbols; `states` and `at` are where each of them goes on next time. */
void rateless_add(const struct symbols *s, const uint64_t *identities, uint64_t *states, int64_t *at, size_t count)
{
  for (size_t i = 0; i < count; i++)
    if (at[i] < s->end)
      at[i] = put(s, identities[i], 1, &states[i], at[i]);
}

/* Take identities that are alone in a symbol out of all symbols, from the symbol `*from` on, `most` at a time.
 * `found` and `signs` get them; the result is their number. `*from` is then where to go on.
 */
size_t rateless_take_out(const struct symbols *s, int64_t *from, size_t most, uint64_t *found, int64_t *signs)
{
  size_t taken = 0;
  for (; *from < s->end && taken < most; ++*from) {
    int64_t sign = s->counts[*from];
    if (sign != 1 && sign != -1)
      continue;
    uint64_t identity = s->sums[*from] * (uint64_t)sign;
    if (((checksum(identity) * (uint64_t)sign) & LOW) != s->checks[*from])
      continue;
    uint64_t state = identity;
    put(s, identity, -sign, &state, 0);
    found[taken] = identity;
    signs[taken++] = sign;
  }
  return taken;
}
