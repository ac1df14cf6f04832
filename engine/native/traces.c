/* Headers, kinds of messages and views of a durability trace, with the results that NumPy gives in
 * ospltool/trace/reading/splitter.py and ospltool/trace/meaning/detail_columns.py, which explain them.
 *
 * The bytes come from anywhere. Positions were found here or there and lie in the data.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "this library is for little-endian processors"
#endif

#define WORD(byte) (UINT64_C(0x0101010101010101) * (byte))

enum {
  STAMP_BYTES = 46, CONTEXT_BYTES = 64, CONTEXTS = 4096, END_BYTES = 5, MESSAGE_BYTES = 512, POINTER_DIGITS = 16,
  PROBES = 64, INLINE_BYTES = 12
};

static const char STAMP[] = "0000-00-00T00:00:00+0000 0000000000.000000000 ";
static const uint64_t SECOND_NS = 1000000000;

static uint64_t mixed(uint64_t hash, uint64_t word)
{
  hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
  return hash ^ hash >> 29;
}

static uint64_t hash_of(const uint8_t *text, size_t size)
{
  uint64_t hash = size, word;
  for (; size >= 8; text += 8, size -= 8) {
    memcpy(&word, text, 8);
    hash = mixed(hash, word);
  }
  word = 0;
  memcpy(&word, text, size);
  return mixed(hash, word);
}

static int is_digit(uint8_t byte) { return (uint8_t)(byte - '0') <= 9; }

static uint64_t number(const uint8_t *digits, int count)
{
  uint64_t found = 0;
  for (int i = 0; i < count; i++)
    found = found * 10 + (uint64_t)(digits[i] - '0');
  return found;
}

static int is_stamp(const uint8_t *text)
{
  for (int i = 0; i < STAMP_BYTES; i++) {
    uint8_t byte = text[i];
    if (STAMP[i] == '0' ? !is_digit(byte) : STAMP[i] == '+' ? byte != '+' && byte != '-' : byte != STAMP[i])
      return 0;
  }
  return 1;
}

/* Whether the two times of a stamp differ in minute and second. */
static int disagrees(const uint8_t *stamp, uint64_t seconds)
{
  int64_t zone = (int64_t)(number(stamp + 20, 2) * 60 + number(stamp + 22, 2));
  int64_t minute = ((int64_t)(seconds / 60) + (stamp[19] == '-' ? -zone : zone)) % 1440;
  int64_t local = (int64_t)((number(stamp + 11, 2) * 60 + number(stamp + 14, 2)) * 60 + number(stamp + 17, 2));
  return (minute < 0 ? minute + 1440 : minute) * 60 + (int64_t)(seconds % 60) != local;
}

/* Columns with an entry for each `) -> `: its end, where its header begins at the start of a line (-1 if it is
 * none of the usual form), and for those that are time (INT64_MIN without one), whether the two times disagree
 * or were not compared, and the context.
 */
struct headers { int64_t *ends, *starts, *times; uint8_t *suspects; int32_t *contexts; };

/* The texts between time and message that occur: where the first of each begins, and its size. */
struct contexts { int64_t count, starts[CONTEXTS], sizes[CONTEXTS]; };

/* Return the number of a context, -1 if there are too many. `table` has their numbers, from 1, by hash. */
static int32_t context_of(const uint8_t *data, int64_t start, int64_t size, struct contexts *c, uint16_t *table)
{
  uint64_t slot = hash_of(data + start, (size_t)size) >> 20;
  for (int probe = 0; probe < PROBES; probe++, slot++) {
    uint16_t *place = table + slot % (2 * CONTEXTS);
    if (!*place) {
      if (c->count == CONTEXTS)
        return -1;
      c->starts[c->count] = start;
      c->sizes[c->count] = size;
      *place = (uint16_t)++c->count;
      return *place - 1;
    }
    if (c->sizes[*place - 1] == size && !memcmp(data + c->starts[*place - 1], data + start, (size_t)size))
      return *place - 1;
  }
  return -1;
}

/* Find every `) -> ` and the headers of the usual form. Return their number, or -1 if there are more than `room`. */
int64_t trace_headers(const uint8_t *data, int64_t size, const struct headers *h, int64_t room, struct contexts *c)
{
  uint16_t table[2 * CONTEXTS] = {0};
  int64_t count = 0;
  c->count = 0;
  for (const uint8_t *at = data, *stop = data + size; (at = memchr(at, '>', (size_t)(stop - at))); at++) {
    if (at - data < 3 || stop - at < 2 || memcmp(at - 3, ") -> ", END_BYTES))
      continue;
    if (count == room)
      return -1;
    int64_t end = at + 2 - data, floor = end - STAMP_BYTES - CONTEXT_BYTES - 1;
    const uint8_t *near = data + (floor < 0 ? 0 : floor);
    const uint8_t *newline = memrchr(near, '\n', (size_t)(data + end - near));
    int64_t start = newline ? newline + 1 - data : floor < 0 ? 0 : -1;
    int64_t width = end - start - STAMP_BYTES;
    h->ends[count] = end;
    h->starts[count] = -1;
    h->times[count] = INT64_MIN;
    h->suspects[count] = 1;
    h->contexts[count] = 0;
    if (start >= 0 && width > 0 && width <= CONTEXT_BYTES && is_stamp(data + start)) {
      int32_t context = context_of(data, start + STAMP_BYTES, width, c, table);
      if (context >= 0) {
        const uint8_t *stamp = data + start;
        uint64_t seconds = number(stamp + 25, 10), time = seconds * SECOND_NS + number(stamp + 36, 9);
        int is_time = time <= INT64_MAX;
        h->starts[count] = start;
        h->times[count] = is_time ? (int64_t)time : INT64_MIN;
        h->suspects[count] = !is_time || disagrees(stamp, seconds);
        h->contexts[count] = context;
      }
    }
    count++;
  }
  return count;
}

/* Write the end of each message without the line ends after it; `ends` are those of the records. */
void trace_stops(const uint8_t *data, const int64_t *bodies, const int64_t *ends, int64_t count, int64_t *stops)
{
  for (int64_t i = 0; i < count; i++) {
    int64_t stop = ends[i];
    if (stop > bodies[i] && data[stop - 1] == '\n')
      stop--;
    while (stop > bodies[i] && (data[stop - 1] == '\n' || data[stop - 1] == '\r'))
      stop--;
    stops[i] = stop;
  }
}

/* Put 0 for every digit of a message, and for every hexadecimal digit after `0x`. `size` is at most
 * MESSAGE_BYTES; up to 7 bytes behind it are written, too.
 */
static void mask(const uint8_t *text, size_t size, uint8_t *masked)
{
  uint64_t last = 0, any = 0;
  memcpy(masked, text, size);
  memcpy(masked + size, &last, 8);
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word, shifted, others;
    memcpy(&word, masked + i, 8);
    shifted = word ^ WORD('0');
    others = (((shifted & WORD(0x7F)) + WORD(0x76)) | shifted) & WORD(0x80);
    word &= ~((((~others & WORD(0x80)) >> 7) * 0xFF) & WORD(0x0F));
    memcpy(masked + i, &word, 8);
    shifted = word ^ WORD('x');
    any |= (shifted - WORD(1)) & ~shifted & WORD(0x80);
  }
  if (!any)
    return;
  for (size_t i = size - 1; i > 0; i--) {
    if (text[i] != 'x' || !is_digit(text[i - 1]))
      continue;
    for (size_t at = i + 1; at < size && at <= i + POINTER_DIGITS; at++) {
      uint8_t lower = text[at] | 0x20;
      if (!is_digit(text[at]) && (lower < 'a' || lower > 'f'))
        break;
      masked[at] = '0';
    }
  }
}

/* Kinds of messages: the first of each, its masked text, from offsets[kind] to offsets[kind + 1] of `texts`. */
struct kinds { int64_t *firsts, *offsets; uint8_t *texts; uint64_t *table; uint64_t table_mask; };

/* Number the messages that are equal apart from digits, and were or were not written by the store's printer;
 * -1 for one that is open, empty or long. Return the number of kinds. There is room for all messages, and the
 * table, all zeros, has twice as many places, a power of 2.
 */
int64_t trace_kinds(const uint8_t *data, const int64_t *bodies, const int64_t *stops, const uint8_t *stores,
                    const uint8_t *opens, int64_t count, const struct kinds *k, int32_t *kind_of)
{
  uint8_t masked[MESSAGE_BYTES + 8];
  int64_t found = 0;
  k->offsets[0] = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t size = stops[i] - bodies[i];
    kind_of[i] = -1;
    if (opens[i] || size <= 0 || size > MESSAGE_BYTES)
      continue;
    mask(data + bodies[i], (size_t)size, masked);
    uint64_t hash = mixed(hash_of(masked, (size_t)size), stores[i]);
    for (uint64_t slot = hash, probe = 0; probe < PROBES; slot++, probe++) {
      uint64_t *place = k->table + (slot & k->table_mask), tag = hash >> 32;
      if (!*place) {
        memcpy(k->texts + k->offsets[found], masked, (size_t)size);
        k->firsts[found] = i;
        k->offsets[found + 1] = k->offsets[found] + size;
        *place = tag << 32 | (uint64_t)++found;
        kind_of[i] = (int32_t)(found - 1);
        break;
      }
      int64_t other = (int64_t)(*place & UINT32_MAX) - 1;
      if (*place >> 32 == tag && k->offsets[other + 1] - k->offsets[other] == size
          && stores[k->firsts[other]] == stores[i] && !memcmp(k->texts + k->offsets[other], masked, (size_t)size)) {
        kind_of[i] = (int32_t)other;
        break;
      }
    }
  }
  return found;
}

/* Write a view of Arrow, of four words, for each piece of data; all zeros for one that is not present. */
void trace_views(const uint8_t *data, const int64_t *starts, const int64_t *stops, const uint8_t *presents,
                 int64_t count, uint32_t *views)
{
  memset(views, 0, (size_t)count * 16);
  for (int64_t i = 0; i < count; i++, views += 4) {
    int64_t size = stops[i] - starts[i];
    if (size <= 0 || (presents && !presents[i]))
      continue;
    views[0] = (uint32_t)size;
    memcpy(views + 1, data + starts[i], size < INLINE_BYTES ? (size_t)size : size > INLINE_BYTES ? 4 : INLINE_BYTES);
    if (size > INLINE_BYTES)
      views[3] = (uint32_t)starts[i];
  }
}
