/* Bounds what Cyclone DDS prints on standard error: with a route that refuses, 170 lines a second.
 *
 * The first line of a kind is printed, the others are counted, and the count is printed once a minute and at the end.
 * Lines are of one kind if they differ only in digits, as in times, addresses and ports. Nothing else in the process
 * prints through this: only the library's own reference to `stderr` is replaced, in the table of its addresses.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { KINDS = 64, TEXT = 240, ERROR_FD = 2 };
static const int64_t SECOND_NS = 1000000000, PERIOD_NS = 60 * 1000000000ll;

struct kind {
  uint64_t mark;                              /* of the line without its digits; 0 for none */
  uint64_t held;                              /* lines that were counted only, since told_ns */
  int64_t told_ns;
  char text[TEXT];                            /* the last of them */
};

static FILE *bounded;                         /* what the library takes for stderr */
static struct kind kinds[KINDS];              /* under the lock of that stream */

static int64_t now_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static void print(const char *text, size_t size)
{
  while (size > 0) {
    ssize_t done = write(ERROR_FD, text, size);
    if (done <= 0)
      return;                                 /* nobody reads it, or the disk is full */
    text += done;
    size -= (size_t)done;
  }
}

static uint64_t mark_of(const char *text, size_t size)
{
  uint64_t mark = 14695981039346656037ull;    /* FNV-1a */
  for (size_t i = 0; i < size; i++)
    if (text[i] < '0' || text[i] > '9')
      mark = (mark ^ (unsigned char)text[i]) * 1099511628211ull;
  return mark | 1;
}

static void tell_held(struct kind *kind, int64_t now)
{
  char line[TEXT + 120];
  if (kind->held == 0)
    return;
  int size = snprintf(line, sizeof line, "%" PRIu64 " more lines like this in %" PRId64 " s, the last: %s\n",
                      kind->held, (now - kind->told_ns) / SECOND_NS, kind->text);
  print(line, size < (int)sizeof line ? (size_t)size : sizeof line - 1);
  kind->held = 0;
  kind->told_ns = now;
}

static ssize_t take(void *none, const char *text, size_t size)
{
  int64_t now = now_ns();
  uint64_t mark = mark_of(text, size);
  struct kind *place = &kinds[0];
  (void)none;
  for (int i = 0; i < KINDS && kinds[i].mark != mark; i++)
    if (kinds[i].told_ns < place->told_ns)
      place = &kinds[i];                      /* the one that was told longest ago makes room */
  for (int i = 0; i < KINDS; i++)
    if (kinds[i].mark == mark)
      place = &kinds[i];
  if (place->mark != mark) {
    tell_held(place, now);
    place->mark = mark;
    place->told_ns = now;
    print(text, size);
    return (ssize_t)size;
  }
  size_t shown = size < TEXT ? size : TEXT - 1;
  memcpy(place->text, text, shown);
  place->text[shown] = 0;
  place->text[strcspn(place->text, "\n")] = 0;
  place->held++;
  if (now - place->told_ns >= PERIOD_NS)
    tell_held(place, now);
  return (ssize_t)size;
}

/* Print the counts that were not printed yet. */
void tell_bounded(void)
{
  if (bounded == NULL)
    return;
  flockfile(bounded);
  for (int i = 0; i < KINDS; i++)
    tell_held(&kinds[i], now_ns());
  funlockfile(bounded);
}

/* Replace the address of `stderr` in a part of the library that the loader has made constant; return whether it is there. */
static int replace_in(uintptr_t first, uintptr_t past)
{
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t from = first & ~(page - 1), to = past & ~(page - 1); /* of the last page the rest stays writable */
  for (uintptr_t at = (first + 7) & ~(uintptr_t)7; at + sizeof(void *) <= past; at += sizeof(void *)) {
    if (*(void **)at != (void *)&stderr)
      continue;
    if (at < to && mprotect((void *)from, to - from, PROT_READ | PROT_WRITE) != 0)
      return 0;
    *(void **)at = (void *)&bounded;
    return at >= to || mprotect((void *)from, to - from, PROT_READ) == 0;
  }
  return 0;
}

static int look(struct dl_phdr_info *info, size_t size, void *wanted)
{
  uintptr_t *sought = wanted;                 /* an address in the library; whether it is done */
  int is_here = 0;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    uintptr_t first = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    is_here |= info->dlpi_phdr[i].p_type == PT_LOAD && sought[0] - first < info->dlpi_phdr[i].p_memsz;
  }
  for (int i = 0; is_here && i < info->dlpi_phnum; i++) {
    uintptr_t first = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO)
      sought[1] |= (uintptr_t)replace_in(first, first + info->dlpi_phdr[i].p_memsz);
  }
  return is_here;
}

/* Bound what the library prints that has this address in it; return whether that is possible. */
int bound_printing(uintptr_t inside)
{
  static const cookie_io_functions_t functions = {.write = take};
  uintptr_t sought[2] = {inside, 0};
  if (bounded != NULL)
    return 1;
  FILE *made = fopencookie(NULL, "w", functions);
  if (made == NULL)
    return 0;
  setvbuf(made, NULL, _IOLBF, 4096);
  bounded = made;
  dl_iterate_phdr(look, sought);
  if (sought[1] == 0) {
    bounded = NULL;
    fclose(made);
  }
  return sought[1] != 0;
}
