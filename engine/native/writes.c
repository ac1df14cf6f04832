/* Many writes with one call: `writer.py` in engine/dds. Between any two writes Python gives up its lock and waits
 * to get it back, and with many late joiners at once their threads do little else.
 *
 * The function of Cyclone DDS comes as an address, as in ring.c.
 */
#include "cyclone.h"

/* Write samples until one cannot be written; return how many were, and in `code` what was said of the last. */
int64_t write_many(int32_t writer, int32_t (*write)(int32_t, const void *, int64_t), const void *const *payloads,
                   const uint64_t *sizes, const int64_t *times, int64_t count, int32_t *code)
{
  int64_t done = 0;
  for (*code = 0; done < count; done++) {
    struct given sample = {payloads[done], sizes[done]};
    if ((*code = write(writer, &sample, times[done])) != 0)
      break;
  }
  return done;
}
