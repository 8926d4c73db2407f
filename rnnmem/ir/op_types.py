"""What is known of each op type, one line a type: the data of `rnnmem.ir.op_table`.

A line is a type and what is true of it, in the words of `WORDS`. A type without ``rerun`` is saved,
never rematerialised; a type without a line is not understood. A test holds each line against
TensorFlow's registry. The types are sorted.
"""

WORDS = {
    # May it run twice?
    "rerun": "depends on its inputs alone and may run twice",
    "pure": "may go where nobody reads it, but runs twice only inside of a whole step net",
    "ours": "no type of TensorFlow's",
    # Its work; a number is the arithmetic per element, relative to one addition.
    "none": "a view of its input, or a few numbers",
    "moves": "copies its output",
    "reads": "passes over its inputs",
    "pointwise": "computes each element of its output",
    "product": "multiplies",
    # Buffers.
    "view": "its result may be its input's buffer: with the same numbers, of another dtype, in an"
    " optional or out of it, an item of a list, each of its inputs, or with some rows written over",
    "slices": "the input of whose buffer its results may be parts",
    "skips": "hands on its input where the result has its size",
    "in_place": "inputs whose buffer its result may take, where not all of a pointwise op's",
    "finishes": "makes its result of a product's in the buffer of that, if nobody else reads it",
    "takes": "may take its input's buffer, and no graph optimizer fuses it",
    "host": "writes into host memory whatever the device",
    "resident": "hands out memory that is there anyway",
    # What it does with values.
    "adds": "adds values up",
    "commutes": "TensorFlow takes its inputs in any order for equal ones",
    "divides": "divides; sizes divide without rest",
    "compares": "asks which of two numbers is larger",
    "whole": "its value for whole numbers: two of them, or those of a vector",
    "matmul": "multiplies matrices",
    "sums_products": "adds up products along axes that an attribute names, of two inputs as a"
    " product of matrices does",
    "implicit": "broadcasts an operand by itself and rounds each element as it would be without",
    "reduces": "makes one number of those along some axes",
    "softmax": "makes probabilities of logits",
    "cross_entropy": "makes losses of logits and labels",
    "labelled": "takes a label, or as many, for each row of its first input, as its second;"
    " or those of one row for all",
    "alike": "fails where its inputs, but for single numbers, have not as many rows each",
    "repeats": "repeats its first input along some axes",
    "fills": "makes equal numbers",
    "reorders": "hands on the numbers it reads, in another order",
    "rows": "has the rows of its first input",
    "asks_shape": "reads nothing of a blob but its shape",
    "own_shape": "its shape is not its inputs', broadcast to each other",
    "sized": "the input that says how large its result is",
    "sign": "the input of which it only asks, of each element, whether it is above 0",
    "bits": "gives the bits of all rows where it is run on 64 of them at a time: always, or"
    " where a row is a multiple of 16 numbers",
    "tokens": "how it works on tokens that several axes count, where other words do not tell: on"
    " each number, along other axes, on a row, by a label of each, or as its sizes say",
    # Lists and optionals.
    "list": "what it does with a list or an optional",
    "variant": "what it does with a list where it is given one",
    "puts": "the input that it puts into a list or an optional, which holds it from then on",
    # What TensorFlow's graph optimizer does with it.
    "folds": "it looks through the op into its readers: a rematerialised reader must find it"
    " rematerialised too, or it might be fused otherwise than before",
    "apart": "it fuses the op neither with what it reads nor with what reads it",
    "calm": "it fuses no matrix product with the op",
    "splits": "it merges nothing into the op",
    "hides": "it sees nothing of what stands before the op",
    # What a run leaves behind.
    "effect": "what a run of a stateful op leaves behind",
    "python": "runs Python",
    # Step nets.
    "runs": "what its step nets are to it",
    "nets": "the attributes that hold them",
    "quiet": "a drawing leaves it out",
}
"""Word -> what it says of a type."""

ROWS = """
Abs                                  rerun pointwise=1 bits
AccumulateNV2                        rerun reads=1 adds commutes
Acos                                 rerun pointwise=12 takes
Acosh                                rerun pointwise=12
Add                                  rerun pointwise=1 adds commutes whole=add bits finishes
AddN                                 rerun reads=1 variant=add adds commutes in_place=all calm bits
AddV2                                rerun pointwise=1 adds commutes whole=add bits finishes
Alias                                view=same ours
All                                  rerun reads=1 reduces rows skips bits
AllCandidateSampler                  effect=draws
Any                                  rerun reads=1 reduces rows skips bits
ApproximateEqual                     commutes
ArgMax                               rerun reads=1 apart bits tokens=axes
ArgMin                               rerun reads=1 apart bits tokens=axes
Asin                                 rerun pointwise=12 takes
Asinh                                rerun pointwise=12
Assert                               effect=none
AssignAddVariableOp                  apart calm
AssignSubVariableOp                  apart calm
AssignVariableOp                     apart calm
Atan                                 rerun pointwise=12 takes bits
Atan2                                rerun pointwise=30
Atanh                                rerun pointwise=12
AvgPool                              rerun reads=9
AvgPool3D                            rerun reads=9
AvgPool3DGrad                        pure
AvgPoolGrad                          pure
BatchMatMul                          rerun product matmul
BatchMatMulV2                        rerun product matmul
BatchMatMulV3                        rerun product matmul
BatchToSpace                         rerun moves
BatchToSpaceND                       rerun moves
BesselI0e                            rerun pointwise=12
BesselI1e                            rerun pointwise=12
Betainc                              rerun pointwise=12
BiasAdd                              rerun reads=1 in_place=0 bits finishes tokens=row
BiasAddGrad                          pure
BiasAddV1                            rerun reads=1
Bitcast                              rerun none folds view=bits bits tokens=each
BitwiseAnd                           rerun pointwise=1 commutes bits
BitwiseOr                            rerun pointwise=1 commutes bits
BitwiseXor                           rerun pointwise=1 commutes bits
BroadcastArgs                        rerun none
BroadcastGradientArgs                rerun none host
BroadcastTo                          rerun moves repeats sized=1 bits tokens=sizes
Case                                 runs=branch nets=branches
Cast                                 rerun pointwise=1 folds in_place=none bits finishes
Ceil                                 rerun pointwise=1 bits
CheckNumerics                        effect=none
CheckNumericsV2                      effect=none
ClipByValue                          rerun pointwise=1 bits
Complex                              rerun pointwise=1
ComplexAbs                           rerun pointwise=1
Concat                               rerun moves
ConcatOffset                         rerun none host
ConcatV2                             rerun moves
Conj                                 rerun pointwise=1 folds
ConjugateTranspose                   rerun moves folds
Const                                rerun none folds resident quiet
Conv2D                               rerun product
Conv2DBackpropFilter                 pure product
Conv2DBackpropInput                  pure product
Conv3D                               rerun product
Conv3DBackpropFilterV2               pure product
Conv3DBackpropInputV2                pure product
Cos                                  rerun pointwise=6 takes bits
Cosh                                 rerun pointwise=12 takes bits
Cross                                rerun pointwise=6
CudnnRNN                             effect=draws
CudnnRNNBackprop                     effect=draws
CudnnRNNBackpropV2                   effect=draws
CudnnRNNBackpropV3                   effect=draws
CudnnRNNV2                           effect=draws
CudnnRNNV3                           effect=draws
Cumprod                              rerun reads=2
Cumsum                               rerun reads=2
DebugIdentityV2                      effect=seen
DebugIdentityV3                      effect=seen
DeepCopy                             effect=none
DepthToSpace                         rerun moves
DepthwiseConv2dNative                rerun product
DepthwiseConv2dNativeBackpropFilter  pure product
DepthwiseConv2dNativeBackpropInput   pure product
DeviceIndex                          effect=none
Diag                                 rerun moves
DiagPart                             rerun moves
Digamma                              rerun pointwise=12
DisableCopyOnRead                    effect=none
Div                                  rerun pointwise=4 divides bits
DivNoNan                             rerun pointwise=4 bits
DumpTensor                           effect=seen
DynamicStitch                        pure
EagerPyFunc                          effect=seen python
Einsum                               rerun product sums_products
Elu                                  rerun pointwise=4 bits
EluGrad                              rerun pointwise=2 bits
Empty                                effect=none
EmptyTensorList                      rerun none list=empty quiet
EnsureShape                          none view=same hides
Equal                                rerun pointwise=1 commutes bits
Erf                                  rerun pointwise=4 bits
Erfc                                 rerun pointwise=6 bits
Erfinv                               rerun pointwise=12
EuclideanNorm                        rerun reads=1 bits
Exp                                  rerun pointwise=4 takes bits
ExpandDims                           rerun none folds view=same rows bits tokens=axes
Expm1                                rerun pointwise=6 takes bits
ExtractImagePatches                  rerun moves
Fill                                 rerun moves folds fills sized=0 bits tokens=sizes
FixedUnigramCandidateSampler         effect=draws
Floor                                rerun pointwise=1 bits
FloorDiv                             rerun pointwise=4 whole=div divides bits
FloorMod                             rerun pointwise=4 whole=mod
FlushSummaryWriter                   effect=seen
FusedBatchNorm                       rerun reads=4
FusedBatchNormGradV3                 pure
FusedBatchNormV2                     rerun reads=4
FusedBatchNormV3                     rerun reads=4
Gather                               rerun moves apart
GatherNd                             rerun moves apart
GatherV2                             rerun moves apart labelled bits tokens=labels
GraphDefVersion                      effect=none
Greater                              rerun pointwise=1 compares bits
GreaterEqual                         rerun pointwise=1 compares bits
GuaranteeConst                       effect=none
HashTableV2                          effect=none
Identity                             rerun none folds view=same quiet bits tokens=each
IdentityN                            rerun none folds view=each quiet
If                                   runs=branch nets=then_branch,else_branch
Igamma                               rerun pointwise=12
Igammac                              rerun pointwise=12
Imag                                 rerun pointwise=1
ImportEvent                          effect=seen
InTopKV2                             rerun reads=1 labelled bits
InitializeTableFromTextFileV2        effect=none
InitializeTableV2                    effect=none
InplaceUpdate                        none view=over
Inv                                  rerun pointwise=4
InvGrad                              rerun pointwise=2
Invert                               rerun pointwise=1
InvertPermutation                    pure
IsFinite                             rerun pointwise=1 bits
IsInf                                rerun pointwise=1
IsNan                                rerun pointwise=1 bits
IsTensorFloat32Enabled               effect=none
IteratorGetDevice                    effect=none
IteratorGetNext                      effect=iterator
IteratorGetNextAsOptional            effect=iterator
IteratorGetNextSync                  effect=iterator
L2Loss                               rerun reads=1
LRN                                  rerun pointwise=4
LRNGrad                              pure
LeakyRelu                            rerun pointwise=1 bits
LeakyReluGrad                        rerun pointwise=2 sign=1 bits
LearnedUnigramCandidateSampler       effect=draws
LeftShift                            rerun pointwise=1
Less                                 rerun pointwise=1 compares bits
LessEqual                            rerun pointwise=1 compares bits
Lgamma                               rerun pointwise=12
LinSpace                             rerun moves
Log                                  rerun pointwise=4 takes bits
Log1p                                rerun pointwise=6 bits
LogSoftmax                           rerun pointwise=8 softmax in_place=0 rows bits
LogUniformCandidateSampler           effect=draws
LogicalAnd                           rerun pointwise=1 commutes bits
LogicalNot                           rerun pointwise=1 bits
LogicalOr                            rerun pointwise=1 commutes bits
LookupTableExportV2                  effect=none
LookupTableFindV2                    effect=none
LookupTableImportV2                  effect=table
LookupTableInsertV2                  effect=table
LookupTableRemoveV2                  effect=table
LookupTableSizeV2                    effect=none
MapPeek                              effect=none
MapSize                              effect=none
MatMul                               rerun product matmul calm
MatrixBandPart                       rerun moves
MatrixDiag                           rerun moves
MatrixDiagPart                       rerun moves
MatrixDiagPartV3                     rerun moves
MatrixDiagV3                         rerun moves
MatrixSetDiagV3                      rerun moves
Max                                  rerun reads=1 reduces apart rows skips whole=max bits
MaxPool                              rerun reads=9
MaxPool3D                            rerun reads=9
MaxPool3DGrad                        pure
MaxPoolGrad                          pure
Maximum                              rerun pointwise=1 whole=max bits
Mean                                 rerun reads=1 reduces rows skips bits
Min                                  rerun reads=1 reduces apart rows skips whole=min bits
Minimum                              rerun pointwise=1 whole=min bits
MirrorPad                            rerun moves
MirrorPadGrad                        pure
Mod                                  rerun pointwise=4
Mul                                  rerun pointwise=1 commutes implicit whole=mul bits
MulNoNan                             rerun pointwise=1 bits
Multinomial                          effect=draws
Ndtri                                rerun pointwise=12
Neg                                  rerun pointwise=1 folds bits
NoOp                                 pure quiet
NonDeterministicInts                 effect=draws
NotEqual                             rerun pointwise=1 commutes bits
OneHot                               rerun moves rows bits tokens=axes
OnesLike                             rerun moves folds fills in_place=0 bits
OptionalFromValue                    rerun none view=optional list=wrap puts=0 apart quiet
OptionalGetValue                     rerun none view=optional list=unwrap quiet
OptionalHasValue                     rerun none quiet
OptionalNone                         rerun none list=none quiet
OrderedMapPeek                       effect=none
OrderedMapSize                       effect=none
Pack                                 rerun moves
Pad                                  rerun moves skips
PadV2                                rerun moves skips
ParallelConcat                       rerun moves
ParameterizedTruncatedNormal         effect=draws
PartitionedCall                      runs=call nets=f
Placeholder                          quiet
PlaceholderWithDefault               rerun none view=same hides
Polygamma                            rerun pointwise=12
Pow                                  rerun pointwise=80 bits=columns
PreventGradient                      view=same bits tokens=each
Print                                effect=seen
PrintV2                              effect=seen
Prod                                 rerun reads=1 reduces rows skips whole=prod bits
PyFunc                               effect=seen python
PyFuncStateless                      python
QueueIsClosedV2                      effect=none
QueueSizeV2                          effect=none
RaggedTensorToVariantGradient        pure
RandomCrop                           effect=draws
RandomGamma                          effect=draws
RandomPoisson                        effect=draws
RandomPoissonV2                      effect=draws
RandomShuffle                        effect=draws
RandomStandardNormal                 effect=draws sized=0
RandomUniform                        effect=draws sized=0
RandomUniformInt                     effect=draws sized=0
Range                                rerun moves sized=1
RangeDataset                         effect=none
Rank                                 rerun none asks_shape
ReadVariableOp                       resident effect=reads
Real                                 rerun pointwise=1
RealDiv                              rerun pointwise=4 implicit divides bits
Reciprocal                           rerun pointwise=4 bits
ReciprocalGrad                       rerun pointwise=2 bits
Relu                                 rerun pointwise=1 bits
Relu6                                rerun pointwise=1 bits
Relu6Grad                            rerun pointwise=2 bits
ReluGrad                             rerun pointwise=2 sign=1 calm bits
Reshape                              rerun none folds view=same sized=1 calm bits
ResizeBilinearGrad                   pure
ResizeNearestNeighborGrad            pure
ResourceApplyAdam                    apart calm
ResourceApplyGradientDescent         apart calm
ResourceApplyKerasMomentum           apart
ResourceCountUpTo                    effect=variable
ResourceGather                       effect=reads
ResourceGatherNd                     effect=reads
ResourceStridedSliceAssign           effect=variable
Restore                              effect=none
RestoreSlice                         effect=none
RestoreV2                            effect=none
Reverse                              rerun moves
ReverseSequence                      rerun moves
ReverseV2                            rerun moves reorders
RightShift                           rerun pointwise=1
Rint                                 rerun pointwise=1 bits
RngReadAndSkip                       effect=variable
RngSkip                              effect=variable
Roll                                 rerun moves
Round                                rerun pointwise=1 bits
Rsqrt                                rerun pointwise=4 bits
RsqrtGrad                            rerun pointwise=2 bits
SampleDistortedBoundingBox           effect=draws
SampleDistortedBoundingBoxV2         effect=draws
Save                                 effect=seen
SaveSlices                           effect=seen
SaveV2                               effect=seen
Select                               rerun pointwise=1 own_shape alike bits
SelectV2                             rerun pointwise=1 bits
Selu                                 rerun pointwise=4 bits
SeluGrad                             rerun pointwise=2 bits
Shape                                rerun none asks_shape apart
ShapeN                               rerun none asks_shape
Sigmoid                              rerun pointwise=4 bits
SigmoidGrad                          rerun pointwise=2 calm bits
Sign                                 rerun pointwise=1 bits
Sin                                  rerun pointwise=6 takes bits
Sinh                                 rerun pointwise=12 takes bits
Size                                 rerun none asks_shape apart
SleepOp                              effect=none
Slice                                rerun moves slices=0 skips bits
Softmax                              rerun pointwise=8 softmax in_place=0 rows bits=columns
SoftmaxCrossEntropyWithLogits        rerun reads=8 cross_entropy apart labelled=repeats bits=columns
Softplus                             rerun pointwise=8 bits
SoftplusGrad                         rerun pointwise=2 bits
Softsign                             rerun pointwise=12 bits
SoftsignGrad                         rerun pointwise=2 bits
SpaceToBatch                         rerun moves
SpaceToBatchND                       rerun moves
SpaceToDepth                         rerun moves
SparseSoftmaxCrossEntropyWithLogits  rerun reads=8 cross_entropy apart labelled bits
SparseTensorSliceDataset             effect=none
Split                                rerun moves apart slices=1 splits
SplitV                               rerun moves apart slices=0 splits
Sqrt                                 rerun pointwise=4 bits
SqrtGrad                             rerun pointwise=2 bits
Square                               rerun pointwise=1 bits
SquaredDifference                    rerun pointwise=1 commutes bits
Squeeze                              rerun none folds view=same rows bits tokens=axes
StagePeek                            effect=none
StageSize                            effect=none
StatefulPartitionedCall              effect=none runs=call nets=f
StatefulRandomBinomial               effect=variable
StatefulStandardNormal               effect=variable
StatefulStandardNormalV2             effect=variable sized=2
StatefulTruncatedNormal              effect=variable sized=2
StatefulUniform                      effect=variable sized=2
StatefulUniformFullInt               effect=variable sized=2
StatefulUniformInt                   effect=variable sized=2
StatelessCase                        runs=branch nets=branches
StatelessIf                          runs=branch nets=then_branch,else_branch
StatelessRandomGetAlg                effect=none
StatelessRandomGetKeyCounter         rerun pointwise=30 own_shape
StatelessRandomGetKeyCounterAlg      rerun pointwise=30 own_shape
StatelessRandomNormal                rerun pointwise=30 sized=0
StatelessRandomNormalV2              rerun pointwise=30 sized=0
StatelessRandomUniform               rerun pointwise=30 sized=0
StatelessRandomUniformFullInt        sized=0
StatelessRandomUniformFullIntV2      rerun pointwise=30 sized=0
StatelessRandomUniformInt            rerun pointwise=30 sized=0
StatelessRandomUniformIntV2          rerun pointwise=30 sized=0
StatelessRandomUniformV2             rerun pointwise=30 sized=0
StatelessTruncatedNormal             rerun pointwise=30 sized=0
StatelessTruncatedNormalV2           rerun pointwise=30 sized=0
StatelessWhile                       runs=loop nets=cond,body
StopGradient                         rerun none folds view=same quiet bits tokens=each
StridedSlice                         rerun moves slices=0 skips
StridedSliceGrad                     pure apart sized=0
Sub                                  rerun pointwise=1 implicit whole=sub bits
Sum                                  rerun reads=1 reduces apart rows skips whole=sum bits
Tan                                  rerun pointwise=10 bits
Tanh                                 rerun pointwise=2 bits
TanhGrad                             rerun pointwise=2 calm bits
TensorDataset                        effect=none
TensorListConcat                     list=concat
TensorListConcatLists                pure
TensorListConcatV2                   pure list=concat
TensorListElementShape               rerun none list=shape
TensorListFromTensor                 rerun moves list=cut
TensorListGather                     pure
TensorListGetItem                    rerun none view=item list=get
TensorListLength                     rerun none list=length quiet
TensorListPopBack                    pure list=pop
TensorListPushBack                   pure list=push puts=1 apart calm quiet
TensorListReserve                    rerun none list=reserve quiet
TensorListResize                     list=resize
TensorListScatterIntoExistingList    list=place
TensorListScatterV2                  pure list=scatter
TensorListSetItem                    pure list=set puts=2
TensorListSplit                      pure moves list=cut
TensorListStack                      rerun moves list=stack apart
TensorSliceDataset                   effect=none
ThreadUnsafeUnigramCandidateSampler  effect=draws
Tile                                 rerun moves repeats skips bits tokens=axes
Timestamp                            effect=none
TopKV2                               rerun moves apart
Transpose                            rerun moves folds rows reorders bits tokens=axes
TruncateDiv                          rerun pointwise=4 divides bits
TruncateMod                          rerun pointwise=4
TruncatedNormal                      effect=draws sized=0
UniformCandidateSampler              effect=draws
Unpack                               rerun moves apart slices=0
UnsortedSegmentSum                   pure sized=2 bits
VarHandleOp                          resident
VarIsInitializedOp                   effect=reads
VariableShape                        effect=reads
While                                runs=loop nets=cond,body
WriteAudioSummary                    effect=seen
WriteFile                            effect=seen
WriteGraphSummary                    effect=seen
WriteHistogramSummary                effect=seen
WriteImageSummary                    effect=seen
WriteRawProtoSummary                 effect=seen
WriteScalarSummary                   effect=seen
WriteSummary                         effect=seen
Xdivy                                rerun pointwise=4 bits
Xlog1py                              rerun pointwise=12
Xlogy                                rerun pointwise=12 bits=columns
ZerosLike                            rerun moves folds variant=zeros fills in_place=0 bits
Zeta                                 rerun pointwise=12
"""
"""The table: a type, then its words, ``word=value`` where one has a value."""
