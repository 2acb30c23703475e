/* Vectors of WIDTH numbers, from any address, for files that are included once for each width; NAME makes
   names of this one. */

#ifndef vector
#define vector NAME(vector)
#define mask NAME(mask)
#define AT(place) (*(vector *)(place))
#define OF(place) (*(const vector *)(place))
#define ALL(number) ((number) - (vector){0}) /* in every place */
#endif

typedef float vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef int32_t mask __attribute__((vector_size(4 * WIDTH)));
