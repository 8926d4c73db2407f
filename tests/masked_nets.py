"""A loop that keeps a mask and the features of a Relu for its gradient."""

import string

from rnnmem.ir import parse
from rnnmem.ir.graph import Net

_TEXT = string.Template("""
net masked(x $f, g0 $f) -> (forward:1, gradient:1) {
  zero int32[] = Const() with {value=constant int32[] 0}
  any int32[2] = Const() with {value=constant int32[2] (-1, -1)}
  empty_k variant[] = EmptyTensorList(any, any) with {element_dtype=type bool}
  empty_r variant[] = EmptyTensorList(any, any) with {element_dtype=type float32}
  empty_t variant[] = EmptyTensorList(any, any) with {element_dtype=type float32}
  forward:0 int32[], forward:1 $f, forward:2 variant[], forward:3 variant[], forward:4 variant[]
      = While(zero, x, empty_k, empty_r, empty_t) with {parallel_iterations=10} {
    body = net body(i int32[], h $f, acc_k variant[], acc_r variant[], acc_t variant[])
        -> (next, h_next, push_k, push_r, push_t) {
      one int32[] = Const() with {value=constant int32[] 1}
      half float32[] = Const() with {value=constant float32[] 0.5}
      next int32[] = AddV2(i, one)
      drawn $f = RandomStandardNormal(one) stateful
      keep $z = GreaterEqual(drawn, half)
      t $f = Tanh(h)
      r $f = $unit(t) $on
      h_next $f = SelectV2(keep, r, h)
      push_k variant[] = TensorListPushBack(acc_k, keep)
      push_r variant[] = TensorListPushBack(acc_r, r)
      push_t variant[] = TensorListPushBack(acc_t, t)
    }
    cond = net forward_cond(i int32[], h $f, acc_k variant[], acc_r variant[], acc_t variant[])
        -> (more) {
      limit int32[] = Const() with {value=constant int32[] 50}
      more bool[] = Less(i, limit)
    }
  }
  gradient:0 int32[], gradient:1 $f, gradient:2 $f,
      gradient:3 variant[], gradient:4 variant[], gradient:5 variant[]
      = While(zero, g0, g0, forward:2, forward:3, forward:4) with {parallel_iterations=10} {
    body = net gradient_body(i int32[], g $f, dt $f,
        acc_k variant[], acc_r variant[], acc_t variant[])
        -> (next, back, dt, pop_k:0, pop_r:0, pop_t:0) {
      one int32[] = Const() with {value=constant int32[] 1}
      any int32[2] = Const() with {value=constant int32[2] (-1, -1)}
      zeros float32[] = Const() with {value=constant float32[] 0.0}
      next int32[] = AddV2(i, one)
      pop_k:0 variant[], pop_k:1 $z = TensorListPopBack(acc_k, any)
      pop_r:0 variant[], pop_r:1 $f = TensorListPopBack(acc_r, any)
      pop_t:0 variant[], pop_t:1 $f = TensorListPopBack(acc_t, any)
      kept $f = SelectV2(pop_k:1, g, zeros)
      d $f = ReluGrad(kept, pop_r:1)
      back $f = TanhGrad(pop_t:1, d)
      $more
    }
    cond = net gradient_cond(i int32[], g $f, dt $f,
        acc_k variant[], acc_r variant[], acc_t variant[]) -> (more) {
      limit int32[] = Const() with {value=constant int32[] 50}
      more bool[] = Less(i, limit)
    }
  }
}
""")


def masked(
    shape: str = "64,65", also: str = "", device: str = "", whole: bool = False, unit: str = "Relu"
) -> Net:
    """The loop and its gradient loop.

    Args:
      shape: of the state.
      also: a further op of the gradient step net that reads ``r'``.
      device: where ``r`` is made.
      whole: whether ``also`` gives whole numbers.
      unit: the op that makes ``r``.
    """
    more = f"more {'int32' if whole else 'float32'}[{shape}] = {also}(pop_r:1)" if also else ""
    on = f'on "{device}"' if device else ""
    f, z = f"float32[{shape}]", f"bool[{shape}]"
    return parse(_TEXT.substitute(f=f, z=z, unit=unit, on=on, more=more))
