/* Types whose samples stay as they were serialized: what makes a node's samples of what Cyclone DDS receives.
 *
 * Cyclone DDS lets everyone bring functions for a type (ddsi_sertype.h, ddsi_serdata.h). These ask the library
 * whether the bytes fit the type, and for the key (dds_cdrstream.h), and keep both as bytes. They run on its
 * receive threads. engine/dds/native_topics.py makes topics of them.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cyclone.h"

enum { HEADER = 4, PADDING = 4, HASH_BYTES = 16, FIXED_KEY = 1 << 1, FIXED_KEY_2 = 1 << 5 /* dds_opcodes.h */ };

struct sertype_ops {                          /* struct ddsi_sertype_ops */
  const void *version;
  void *argument;
  void (*free)(struct sertype *);
  void (*zero_samples)(const struct sertype *, void *, size_t);
  void (*realloc_samples)(void **, const struct sertype *, void *, size_t, size_t);
  void (*free_samples)(const struct sertype *, void **, size_t, int);
  bool (*equal)(const struct sertype *, const struct sertype *);
  uint32_t (*hash)(const struct sertype *);
  void *(*type_id)(const struct sertype *, int);
  void *(*type_map)(const struct sertype *);
  void *(*type_info)(const struct sertype *);
  struct sertype *(*derive)(const struct sertype *, int, const void *);
  void *serialized_size, *serialize_into;     /* for shared memory */
};

struct piece { void *base; size_t size; };    /* ddsrt_iovec_t */

struct message {                              /* struct ddsi_rmsg (ddsi_radmin.h), before the bytes of a packet */
  uint32_t references;
  void *last;
  bool is_traced;
  void *buffer, *next, *size;
  uint8_t packet[];
};

struct fragment {                             /* struct ddsi_rdata */
  const struct message *message;
  const struct fragment *next;
  uint32_t begin, end;
  uint16_t submessage_at, payload_at;
};

struct serdata_ops {                          /* struct ddsi_serdata_ops */
  bool (*is_same_key)(const struct serdata *, const struct serdata *);
  uint32_t (*size)(const struct serdata *);
  struct serdata *(*of_fragments)(const struct sertype *, int, const struct fragment *, size_t);
  struct serdata *(*of_pieces)(const struct sertype *, int, size_t, const struct piece *, size_t);
  struct serdata *(*of_key_hash)(const struct sertype *, const void *);
  struct serdata *(*of_given)(const struct sertype *, int, const void *);
  void (*copy)(const struct serdata *, size_t, size_t, void *);
  struct serdata *(*lend)(struct serdata *, size_t, size_t, struct piece *);
  void (*take_back)(struct serdata *, const struct piece *);
  bool (*to_given)(const struct serdata *, void *, void **, void *);
  struct serdata *(*key_of)(const struct serdata *);
  bool (*key_to_given)(const struct sertype *, const struct serdata *, void *, void **, void *);
  void (*free)(struct serdata *);
  size_t (*print)(const struct sertype *, const struct serdata *, char *, size_t);
  void (*key_hash)(const struct serdata *, uint8_t *, bool);
  void *of_loan, *of_shared, *related;        /* for shared memory, and later releases */
};

struct sertype {                              /* struct ddsi_sertype begins so; the rest is for the library */
  const struct sertype_ops *ops;
  const struct serdata_ops *serdata_ops;
  uint32_t base_hash;
  uint64_t rest[16];
};

struct layout { uint32_t size, align, flags; uint64_t rest[16]; };    /* struct dds_cdrstream_desc */
struct stream { uint8_t *bytes; uint32_t size, at, version; };        /* dds_istream_t and dds_ostream_t */
struct allocator { void *(*make)(size_t), *(*again)(void *, size_t); void (*free)(void *); };
struct md5 { uint64_t state[16]; };                                   /* ddsrt_md5_state_t has 88 bytes */

struct type {
  struct sertype head;
  struct layout layout;
  bool is_keyed, is_known, is_bare;           /* bare: nothing but its name is known */
  uint32_t information_size, mapping_size;
  uint8_t blobs[];                            /* type information, then type mapping */
};

/* Functions of Cyclone DDS, in the order of native_topics.py. */
static struct {
  const struct allocator *allocator;
  const void *version;
  void (*type_init)(struct sertype *, const char *, const struct sertype_ops *, const struct serdata_ops *, size_t,
                    uint64_t, uint32_t, uint32_t);
  void (*type_fini)(struct sertype *);
  void *(*information)(const uint8_t *, uint32_t);
  void (*information_free)(void *);
  void *(*information_id)(const void *, int);
  void *(*mapping)(const uint8_t *, uint32_t);
  void (*serdata_init)(struct serdata *, const struct sertype *, int);
  void (*layout_init)(struct layout *, const void *);
  void (*layout_fini)(struct layout *, const struct allocator *);
  bool (*normalize)(void *, uint32_t, bool, uint32_t, const struct layout *, bool, uint32_t *);
  bool (*key_of_data)(struct stream *, struct stream *, const struct allocator *, const struct layout *);
  void (*key_of_key)(struct stream *, struct stream *, int, const struct allocator *, const struct layout *);
  void (*key_of_key_be)(struct stream *, struct stream *, int, const struct allocator *, const struct layout *);
  void (*md5_init)(struct md5 *);
  void (*md5_append)(struct md5 *, const uint8_t *, uint32_t);
  void (*md5_finish)(struct md5 *, uint8_t *);
} cyclone;

/* Samples. */

static const struct type *type_of(const struct serdata *s) { return (const struct type *)s->type; }
static const struct sample *sample_of(const struct serdata *s) { return (const struct sample *)s; }

static uint32_t version_of(const struct sample *s) { return ((const uint8_t *)s->data)[1] > 3 ? 2 : 1; }

static struct sample *made(const struct sertype *type, int kind, size_t size)
{
  struct sample *s = size < HEADER || size > UINT32_MAX - PADDING ? NULL : malloc(sizeof *s + size + PADDING);
  if (s) {
    cyclone.serdata_init(&s->head, type, kind);
    uint8_t *data = (uint8_t *)(s + 1);
    memset(data + size, 0, PADDING);          /* the library reads up to a multiple of four bytes */
    s->data = data;
    s->size = size;
    s->key = NULL;
    s->key_size = 0;
    s->received = 0;
    s->number = 0;
  }
  return s;
}

/* The time of this machine, but later than what it returned before: samples of one writer keep their order by it. */
static int64_t arrival(void)
{
  static _Atomic int64_t last;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  int64_t time = now.tv_sec * INT64_C(1000000000) + now.tv_nsec, before = atomic_load(&last);
  do
    if (time <= before)
      time = before + 1;
  while (!atomic_compare_exchange_weak(&last, &before, time));
  return time;
}

/* In a packet and in its DATA or DATA_FRAG submessage (DDSI-RTPS 2.5, 9.4.5.4), which Cyclone DDS has brought into this
   machine's byte order. */
enum { PREFIX_AT = 8, PREFIX_BYTES = 12, ENTITY_AT = 12, ENTITY_BYTES = 4, NUMBER_AT = 16 };

/* The sequence number of a sample. */
static uint64_t number_of(const struct fragment *f)
{
  const uint8_t *submessage = f->message->packet + f->submessage_at;
  uint32_t halves[2];
  memcpy(halves, submessage + NUMBER_AT, sizeof halves);
  return (uint64_t)halves[0] << 32 | halves[1];
}

static void sample_free(struct serdata *s)
{
  const struct sample *sample = sample_of(s);
  if (sample->data && sample->key)
    cyclone.allocator->free((void *)sample->key);
  free(s);
}

static uint32_t hash_of(const uint8_t *bytes, size_t size)
{
  uint32_t hash = UINT32_C(2166136261);       /* FNV-1a */
  for (size_t i = 0; i < size; i++)
    hash = (hash ^ bytes[i]) * UINT32_C(16777619);
  return hash ^ hash >> 15;
}

/* Whether the bytes fit the type; then they are in this machine's byte order, and the key is known. */
static bool is_finished(const struct type *type, struct sample *s)
{
  uint8_t *data = (uint8_t *)s->data;
  bool is_swapped = !(data[1] & 1);           /* this library is for little-endian processors */
  uint32_t version = version_of(s), size = (uint32_t)s->size - HEADER, used;
  bool is_key = s->head.kind == KEY_ONLY;
  if (!type->is_known || !cyclone.normalize(data + HEADER, size, is_swapped, version, &type->layout, is_key, &used))
    return false;
  if (is_swapped)
    data[1] ^= 1;
  if (!type->is_keyed)
    return true;
  struct stream in = {data + HEADER, size, 0, version}, out = {NULL, 0, 0, 2};
  bool has_key = true;
  if (is_key)
    cyclone.key_of_key(&in, &out, 0, cyclone.allocator, &type->layout);
  else
    has_key = cyclone.key_of_data(&in, &out, cyclone.allocator, &type->layout);
  s->key = out.bytes;
  s->key_size = out.at;
  return has_key;
}

static bool is_accepted(struct sample *s)
{
  const struct type *type = type_of(&s->head);
  if (!type->is_bare && !is_finished(type, s))
    return false;
  s->head.hash = type->head.base_hash ^ hash_of(s->key, s->key_size);
  return true;
}

/* Samples that are not values of their type, by writer. Cyclone DDS only logs that they are not delivered. */
enum { REFUSED_WRITERS = 256, GUID_BYTES = PREFIX_BYTES + ENTITY_BYTES };

struct refusal {                              /* native_topics.py has the same */
  uint8_t writer[GUID_BYTES];
  uint64_t count;
  uint32_t size;                              /* of the last one, with its header */
  uint8_t header[HEADER];
};

static struct {
  pthread_mutex_t mutex;
  _Atomic uint64_t total;
  uint32_t used;                              /* of `writers`; further ones take the places of the earliest */
  struct refusal writers[REFUSED_WRITERS];
} refused = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void refuse(const struct fragment *f, size_t size, const void *header)
{
  uint32_t writer[GUID_BYTES / 4];
  memcpy(writer, f->message->packet + PREFIX_AT, PREFIX_BYTES);
  memcpy(writer + PREFIX_BYTES / 4, f->message->packet + f->submessage_at + ENTITY_AT, ENTITY_BYTES);
  for (int i = 0; i < GUID_BYTES / 4; i++)
    writer[i] = __builtin_bswap32(writer[i]); /* as discovery tells it */
  pthread_mutex_lock(&refused.mutex);
  uint32_t at = 0, known = refused.used < REFUSED_WRITERS ? refused.used : REFUSED_WRITERS;
  while (at < known && memcmp(refused.writers[at].writer, writer, GUID_BYTES))
    at++;
  if (at == known) {
    at = refused.used++ % REFUSED_WRITERS;
    refused.writers[at].count = 0;
    memcpy(refused.writers[at].writer, writer, GUID_BYTES);
  }
  refused.writers[at].count++;
  refused.writers[at].size = (uint32_t)size;
  memcpy(refused.writers[at].header, header, HEADER);
  pthread_mutex_unlock(&refused.mutex);
  atomic_fetch_add(&refused.total, 1);
}

/* How many samples were refused so far. */
uint64_t types_refused(void) { return atomic_load(&refused.total); }

/* Copy up to REFUSED_WRITERS writers with refused samples; returns how many. */
uint64_t types_refusals(struct refusal *to)
{
  pthread_mutex_lock(&refused.mutex);
  uint32_t known = refused.used < REFUSED_WRITERS ? refused.used : REFUSED_WRITERS;
  memcpy(to, refused.writers, known * sizeof *to);
  pthread_mutex_unlock(&refused.mutex);
  return known;
}

static struct serdata *of_fragments(const struct sertype *type, int kind, const struct fragment *f, size_t size)
{
  struct sample *s = made(type, kind, size);
  if (!s) {
    refuse(f, size, (uint8_t[HEADER]){0}); /* it has not even a header */
    return NULL;
  }
  size_t at = 0;
  const struct fragment *first = f;
  for (; f && f->begin <= at && f->end <= size; f = f->next)
    if (f->end > at) {
      memcpy((uint8_t *)s->data + at, f->message->packet + f->payload_at + at - f->begin, f->end - at);
      at = f->end;
    }
  if (!f && at == size) {
    s->received = arrival();
    s->number = number_of(first);
    if (is_accepted(s))
      return &s->head;
    refuse(first, size, s->data);
  }
  sample_free(&s->head);
  return NULL;
}

static struct serdata *of_pieces(const struct sertype *type, int kind, size_t count, const struct piece *pieces,
                                 size_t size)
{
  struct sample *s = made(type, kind, size);
  if (!s)
    return NULL;
  size_t at = 0;
  for (size_t i = 0; i < count && at < size; i++) {
    size_t some = pieces[i].size < size - at ? pieces[i].size : size - at;
    memcpy((uint8_t *)s->data + at, pieces[i].base, some);
    at += some;
  }
  if (at == size && is_accepted(s))
    return &s->head;
  sample_free(&s->head);
  return NULL;
}

static struct serdata *of_given(const struct sertype *type, int kind, const void *sample)
{
  const struct given *given = sample;
  return of_pieces(type, kind, 1, &(struct piece){(void *)given->bytes, given->size}, given->size);
}

static struct serdata *of_key_hash(const struct sertype *type, const void *hash)
{
  (void)type, (void)hash;
  return NULL;                                /* only for messages that have neither data nor key */
}

static bool is_same_key(const struct serdata *a, const struct serdata *b)
{
  const struct sample *one = sample_of(a), *two = sample_of(b);
  return one->key_size == two->key_size && (!one->key_size || !memcmp(one->key, two->key, one->key_size));
}

static uint32_t size_of(const struct serdata *s) { return (uint32_t)sample_of(s)->size; }

static void copy(const struct serdata *s, size_t at, size_t size, void *to)
{
  memcpy(to, (const uint8_t *)sample_of(s)->data + at, size);
}

static struct serdata *lend(struct serdata *s, size_t at, size_t size, struct piece *piece)
{
  *piece = (struct piece){(uint8_t *)sample_of(s)->data + at, size};
  atomic_fetch_add_explicit(&s->references, 1, memory_order_relaxed);
  return s;
}

static void take_back(struct serdata *s, const struct piece *piece)
{
  (void)piece;
  if (atomic_fetch_sub_explicit(&s->references, 1, memory_order_acq_rel) == 1)
    sample_free(s);
}

/* A sample of the key alone, by which Cyclone DDS knows an instance; it can outlive the type. */
static struct serdata *key_of(const struct serdata *s)
{
  const struct sample *whole = sample_of(s);
  struct sample *key = malloc(sizeof *key + whole->key_size);
  if (!key)
    abort();                                  /* Cyclone DDS does not allow that it fails */
  cyclone.serdata_init(&key->head, s->type, KEY_ONLY);
  key->head.hash = s->hash;
  key->data = NULL;
  key->size = 0;
  key->key = key + 1;
  key->key_size = whole->key_size;
  if (whole->key_size)
    memcpy(key + 1, whole->key, whole->key_size);
  return &key->head;
}

/* What an application takes; our readers hand out samples in a way of their own. */
static bool to_given(const struct serdata *s, void *sample, void **from, void *to)
{
  (void)s, (void)sample, (void)from, (void)to;
  return false;
}

static bool key_to_given(const struct sertype *type, const struct serdata *s, void *sample, void **from, void *to)
{
  (void)type;
  return to_given(s, sample, from, to);
}

static size_t print(const struct sertype *type, const struct serdata *s, char *text, size_t size)
{
  (void)type, (void)s;
  if (size)
    *text = 0;
  return 0;
}

static void key_hash(const struct serdata *s, uint8_t *hash, bool as_md5)
{
  const struct sample *sample = sample_of(s);
  const struct type *type = type_of(s);
  memset(hash, 0, HASH_BYTES);
  if (!type->is_keyed)
    return;
  uint32_t version = sample->data ? version_of(sample) : 2;
  struct stream in = {(uint8_t *)sample->key, (uint32_t)sample->key_size, 0, 2}, out = {NULL, 0, 0, version};
  cyclone.key_of_key_be(&in, &out, 1, cyclone.allocator, &type->layout);
  bool is_short = out.at <= HASH_BYTES;
  if (as_md5 || !is_short || !(type->layout.flags & (version == 2 ? FIXED_KEY_2 : FIXED_KEY))) {
    struct md5 md5;
    uint8_t padded[HASH_BYTES] = {0};
    if (is_short && out.at)
      memcpy(padded, out.bytes, out.at);
    cyclone.md5_init(&md5);
    cyclone.md5_append(&md5, is_short ? padded : out.bytes, is_short ? HASH_BYTES : out.at);
    cyclone.md5_finish(&md5, hash);
  } else if (out.at)
    memcpy(hash, out.bytes, out.at);
  cyclone.allocator->free(out.bytes);
}

static const struct serdata_ops SAMPLE_OPS = {
  is_same_key, size_of, of_fragments, of_pieces, of_key_hash, of_given, copy, lend, take_back, to_given, key_of,
  key_to_given, sample_free, print, key_hash, NULL, NULL, NULL};

/* Types. */

static const struct type *whole(const struct sertype *type) { return (const struct type *)type; }

static void type_free(struct sertype *type)
{
  struct type *t = (struct type *)type;
  if (t->is_known)
    cyclone.layout_fini(&t->layout, cyclone.allocator);
  cyclone.type_fini(type);
  free(t);
}

static bool is_equal(const struct sertype *a, const struct sertype *b)
{
  const struct type *one = whole(a), *two = whole(b);
  return one->is_bare == two->is_bare && one->is_keyed == two->is_keyed &&
         one->information_size == two->information_size && one->mapping_size == two->mapping_size &&
         !memcmp(one->blobs, two->blobs, (size_t)one->information_size + one->mapping_size);
}

static uint32_t type_hash(const struct sertype *type)
{
  return hash_of(whole(type)->blobs, whole(type)->information_size);
}

static void *type_information(const struct sertype *type)
{
  return cyclone.information(whole(type)->blobs, whole(type)->information_size);
}

static void *type_mapping(const struct sertype *type)
{
  const struct type *t = whole(type);
  return cyclone.mapping(t->blobs + t->information_size, t->mapping_size);
}

static void *type_id(const struct sertype *type, int kind)
{
  void *information = type_information(type);
  void *found = information ? cyclone.information_id(information, kind) : NULL;
  if (information)
    cyclone.information_free(information);
  return found;
}

static struct sertype *derive(const struct sertype *type, int representation, const void *consistency)
{
  (void)representation, (void)consistency;
  return (struct sertype *)type;              /* one type has all representations */
}

static void zero_samples(const struct sertype *type, void *samples, size_t count)
{
  (void)type;
  memset(samples, 0, count * sizeof(struct given));
}

static void realloc_samples(void **each, const struct sertype *type, void *old, size_t before, size_t count)
{
  (void)type;
  struct given *samples = cyclone.allocator->again(old, count * sizeof *samples);
  for (size_t i = 0; i < count; i++) {
    if (i >= before)
      samples[i] = (struct given){NULL, 0};
    each[i] = &samples[i];
  }
}

static void free_samples(const struct sertype *type, void **each, size_t count, int how)
{
  (void)type;
  if (count && how & 1)                       /* DDS_FREE_ALL_BIT */
    cyclone.allocator->free(each[0]);
}

static struct sertype_ops type_ops = {
  NULL, NULL, type_free, zero_samples, realloc_samples, free_samples, is_equal, type_hash, type_id, type_mapping,
  type_information, derive, NULL, NULL};
static struct sertype_ops bare_ops;           /* the same, but they do not tell the type */

/* Take the functions of Cyclone DDS; once, before anything else here. False if they are not as many as needed. */
bool types_open(const void *const *functions, uint64_t count)
{
  if (count * sizeof *functions != sizeof cyclone)
    return false;
  memcpy(&cyclone, functions, sizeof cyclone);
  type_ops.version = cyclone.version;
  bare_ops = type_ops;
  bare_ops.type_id = NULL;
  bare_ops.type_map = bare_ops.type_info = NULL;
  return true;
}

/* Make a type, for dds_create_topic_sertype; NULL without memory. Of a bare one nothing but the name is told. */
struct sertype *type_make(const char *name, const void *information, uint32_t information_size, const void *mapping,
                          uint32_t mapping_size, uint64_t properties, uint32_t representations, bool is_keyed,
                          bool is_bare)
{
  struct type *t = calloc(1, sizeof *t + information_size + mapping_size);
  if (!t)
    return NULL;
  cyclone.type_init(&t->head, name, is_bare ? &bare_ops : &type_ops, &SAMPLE_OPS, sizeof(struct given), properties,
                    representations, 0);
  t->is_keyed = is_keyed;
  t->is_bare = is_bare;
  t->information_size = information_size;
  t->mapping_size = mapping_size;
  memcpy(t->blobs, information, information_size);
  memcpy(t->blobs + information_size, mapping, mapping_size);
  return &t->head;
}

/* Whether a type has its layout; without one it refuses all samples. */
bool type_is_known(const struct sertype *type) { return whole(type)->is_known || whole(type)->is_bare; }

/* Take the layout of a type from its dds_topic_descriptor_t. No reader or writer has it yet. */
void type_describe(struct sertype *type, const void *descriptor)
{
  struct type *t = (struct type *)type;
  cyclone.layout_init(&t->layout, descriptor);
  t->is_known = true;
}
