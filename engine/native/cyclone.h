/* What public headers of Cyclone DDS 11 declare, as far as it is used here, and what is ours behind it.
 *
 * `engine.dds.selfcheck` proves it before a node relies on it; engine/dds/abi.py has the same.
 */
#ifndef CYCLONE_H
#define CYCLONE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { KEY_ONLY = 1, WHOLE = 2 };             /* enum ddsi_serdata_kind */

struct serdata_ops;
struct sertype;

struct serdata {                              /* struct ddsi_serdata */
  const struct serdata_ops *ops;
  uint32_t hash;
  _Atomic uint32_t references;
  int32_t kind;
  const struct sertype *type;
  int64_t time;
  uint32_t status;
  int64_t written;
  void *loan;
};

struct sample {                               /* a sample of the types in types.c */
  struct serdata head;
  const void *data;                           /* with its header */
  uint64_t size;
  const void *key;                            /* XCDR2 without a header */
  uint64_t key_size;
  int64_t received;                           /* when it arrived, later than all before; 0 if it was made here */
  uint64_t number;                            /* its writer's sequence number; 0 if that is not known */
};

struct given { const void *bytes; size_t size; }; /* what a writer of these types takes */

_Static_assert(offsetof(struct sample, data) == 64, "abi.py has the same");

#endif
