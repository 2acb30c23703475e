/* XLA's foreign function interface, as far as it is read, and its threads.
Source: XLA, xla/ffi/api/c_api.h. */

#include <stddef.h>
#include <stdint.h>

typedef struct extension extension;

#define HEAD   \
  size_t size; \
  extension *more

typedef struct {
  HEAD;
  int dtype;
  void *data;
  int64_t rank;
  int64_t *sizes;
} buffer;

typedef struct {
  HEAD;
  int64_t count;
  int *types;
  buffer **each;
} buffers;

typedef struct {
  const char *text;
  size_t length;
} name;

typedef struct {
  int dtype;
  int32_t *value;
} number;

typedef struct {
  HEAD;
  int64_t count;
  int *types;
  name **names;
  number **each;
} attributes;

typedef struct {
  HEAD;
  const struct api *api;
  void *context;
  int stage;
  buffers arguments, results;
  attributes attributes;
} frame;

/* Of this library alone: other libraries have functions of such names. */
#pragma GCC visibility push(hidden)

/* Whether XLA asks for the version of the interface alone, and has been told. */
int is_question(const frame *f);

/* An integer that `foreign.call` was given. */
int32_t option(const frame *f, const char *name);

/* How many threads XLA has. */
int64_t threads_of(const frame *f);

/* Call work(data, 0), ..., work(data, parts - 1) on XLA's threads, this one included. It takes what
   others have not begun: should all be busy, it does everything. */
void share(const frame *f, void (*work)(void *data, int64_t part), void *data, int64_t parts);

/* The error that XLA raises, to be returned. */
void *failure(const frame *f, const char *message);

#pragma GCC visibility pop
