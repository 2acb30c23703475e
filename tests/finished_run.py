"""What results.json of a good run on sprites holds."""

import math

GOOD = {
    "half_range_degrees": 88.14,
    "half_range_raw_degrees": 86.4,
    "true_half_range_degrees": 90.0,
    "outside_share": 0.0213,
    "kolmogorov_distance": 0.046,
    "test_accuracy": 0.9983,
    "test_accuracy_averaged": 0.985,
    "entropy": -0.004,
    "log_volume": math.log(2),
    "entropy_floor": -1.5,
    "seconds": 251.0,
    "seed": 3,
    "steps": 6000,
    "method": "flow",
    "collapsed": False,
    "saturated": False,
    "saturated_share": 0.0012,
}
