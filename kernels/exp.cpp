#include "kernels/body/math.h"
#include "kernels/kda.h"
#include "kernels/scalar/pack.h"

namespace kernels {

float exp_scalar(float x) { return body::exp(scalar::Pack::all(x)).lane[0]; }

}  // namespace kernels
