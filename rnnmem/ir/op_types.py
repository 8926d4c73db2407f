"""What is known of each op type, one line a type: the data of `rnnmem.ir.op_table`.

A line is a type and what is true of it, in words of `rnnmem.ir.op_words`. A type without ``rerun``
is saved, never rematerialised; a type without a line is not understood. A test holds each line
against TensorFlow's registry. The types are sorted.
"""

ROWS = """
Abs                                  rerun pointwise=1 bits
AccumulateNV2                        rerun reads=1 adds commutes
Acos                                 rerun pointwise=3 takes
Acosh                                rerun pointwise=120
Add                                  rerun pointwise=1 adds commutes whole=add bits finishes
AddN                                 rerun reads=1 variant=add adds commutes in_place=all calm bits
AddV2                                rerun pointwise=1 adds commutes whole=add bits finishes unit=0
Alias                                view=same ours
All                                  rerun reads=1 reduces rows skips bits
AllCandidateSampler                  effect=draws
Angle                                rerun pointwise=20 complex
Any                                  rerun reads=1 reduces rows skips bits
ApproximateEqual                     commutes
ArgMax                               rerun reads=10 apart bits tokens=axes
ArgMin                               rerun reads=10 apart bits tokens=axes
Asin                                 rerun pointwise=3 takes
Asinh                                rerun pointwise=120
Assert                               effect=none
AssignAddVariableOp                  apart calm
AssignSubVariableOp                  apart calm
AssignVariableOp                     apart calm
Atan                                 rerun pointwise=3 takes bits
Atan2                                rerun pointwise=8
Atanh                                rerun pointwise=12
AvgPool                              rerun reads=9
AvgPool3D                            rerun reads=9
AvgPool3DGrad                        pure sized=0
AvgPoolGrad                          pure sized=0
BandedTriangularSolve                rerun solves=0.2
BatchMatMul                          rerun product matmul wakes starts
BatchMatMulV2                        rerun product matmul wakes starts
BatchMatMulV3                        rerun product matmul wakes starts
BatchToSpace                         rerun moves
BatchToSpaceND                       rerun moves
BesselI0                             rerun pointwise=20
BesselI0e                            rerun pointwise=16
BesselI1                             rerun pointwise=18
BesselI1e                            rerun pointwise=17
Betainc                              rerun pointwise=480
BiasAdd                              rerun reads=1 in_place=0 bits finishes tokens=row
BiasAddGrad                          pure joined=0
BiasAddV1                            rerun reads=1
Bitcast                              rerun none folds view=bits bits tokens=each
BitwiseAnd                           rerun pointwise=10 commutes bits
BitwiseOr                            rerun pointwise=10 commutes bits
BitwiseXor                           rerun pointwise=1 commutes bits
BroadcastArgs                        rerun none
BroadcastGradientArgs                rerun none host
BroadcastTo                          rerun moves repeats skips sized=1 bits tokens=sizes
Bucketize                            rerun reads=6
Case                                 runs=branch nets=branches
Cast                                 rerun pointwise=1 folds in_place=none bits finishes
Ceil                                 rerun pointwise=1 bits
CheckNumerics                        effect=none
CheckNumericsV2                      effect=none
Cholesky                             rerun solves=0.3
CholeskyGrad                         rerun solves=1
ClipByValue                          rerun pointwise=1 bits
Complex                              rerun pointwise=8
ComplexAbs                           rerun pointwise=19 complex
ComputeAccidentalHits                rerun moves counted=0
Concat                               rerun moves
ConcatOffset                         rerun none host
ConcatV2                             rerun moves
Conj                                 rerun pointwise=1 folds complex
ConjugateTranspose                   rerun moves folds wakes complex
Const                                rerun none folds resident quiet
Conv2D                               rerun product=1.2 wakes=3
Conv2DBackpropFilter                 pure product=2 wakes=3 patches sized=1 joined=2
Conv2DBackpropInput                  pure product=1.5 wakes=3 patches sized=0
Conv3D                               rerun product=1.2 wakes=3
Conv3DBackpropFilterV2               pure product=2 wakes=3 sized=1
Conv3DBackpropInputV2                pure product=1.5 wakes=3 sized=0
Cos                                  rerun pointwise=7 takes bits
Cosh                                 rerun pointwise=80 takes bits
CropAndResize                        rerun moves
CropAndResizeGradBoxes               pure
CropAndResizeGradImage               pure
Cross                                rerun pointwise=6
CudnnRNN                             effect=draws
CudnnRNNBackprop                     effect=draws
CudnnRNNBackpropV2                   effect=draws
CudnnRNNBackpropV3                   effect=draws
CudnnRNNV2                           effect=draws
CudnnRNNV3                           effect=draws
Cumprod                              rerun reads=33
Cumsum                               rerun reads=33
CumulativeLogsumexp                  rerun reads=120
Dawsn                                rerun pointwise=50
DebugIdentityV2                      effect=seen
DebugIdentityV3                      effect=seen
DeepCopy                             effect=none
DepthToSpace                         rerun moves
DepthwiseConv2dNative                rerun product=10
DepthwiseConv2dNativeBackpropFilter  pure product=25 sized=1
DepthwiseConv2dNativeBackpropInput   pure product=8 sized=0
DeviceIndex                          effect=none
Diag                                 rerun moves
DiagPart                             rerun moves
Digamma                              rerun pointwise=90
DisableCopyOnRead                    effect=none
Div                                  rerun pointwise=1.5 divides bits
DivNoNan                             rerun pointwise=1.5 bits
DumpTensor                           effect=seen
DynamicPartition                     rerun moves counted=1
DynamicStitch                        pure
EagerPyFunc                          effect=seen python
Einsum                               rerun product sums_products wakes starts
Elu                                  rerun pointwise=8 bits
EluGrad                              rerun pointwise=2 bits
Empty                                effect=none sized=0
EmptyTensorList                      rerun none list=empty quiet
EnsureShape                          none view=same hides
Equal                                rerun pointwise=8 commutes bits
Erf                                  rerun pointwise=4 bits
Erfc                                 rerun pointwise=12 bits
Erfinv                               rerun pointwise=50
EuclideanNorm                        rerun reads=1 bits
Exp                                  rerun pointwise=4 takes bits
ExpandDims                           rerun none folds view=same rows bits tokens=axes
Expint                               rerun pointwise=40
Expm1                                rerun pointwise=18 takes bits
ExtractImagePatches                  rerun moves=10
ExtractVolumePatches                 rerun moves
FFT                                  rerun reads=14 complex
FFT2D                                rerun reads=30 complex
FFT3D                                rerun reads=40 complex
FakeQuantWithMinMaxArgs              rerun pointwise=6 own_shape
FakeQuantWithMinMaxArgsGradient      pure
FakeQuantWithMinMaxVars              rerun pointwise=6 own_shape
FakeQuantWithMinMaxVarsGradient      pure
FakeQuantWithMinMaxVarsPerChannel    rerun pointwise=6 own_shape
FakeQuantWithMinMaxVarsPerChannelGradient pure
Fill                                 rerun moves folds fills sized=0 bits tokens=sizes
FixedUnigramCandidateSampler         effect=draws
Floor                                rerun pointwise=1 bits
FloorDiv                             rerun pointwise=3 whole=div divides bits
FloorMod                             rerun pointwise=30 whole=mod
FlushSummaryWriter                   effect=seen
FresnelCos                           rerun pointwise=36
FresnelSin                           rerun pointwise=45
FusedBatchNorm                       rerun reads=4
FusedBatchNormGradV3                 pure reads=3
FusedBatchNormV2                     rerun reads=4
FusedBatchNormV3                     rerun reads=4
Gather                               rerun moves apart each=60 indices=1
GatherNd                             rerun moves apart each=40 index_vectors=1
GatherV2                             rerun moves apart labelled bits tokens=labels each=60 indices=1
GraphDefVersion                      effect=none
Greater                              rerun pointwise=8 compares=gt bits
GreaterEqual                         rerun pointwise=8 compares=ge bits
GuaranteeConst                       effect=none
HSVToRGB                             rerun reads=6
HashTableV2                          effect=none
IFFT                                 rerun reads=12 complex
IFFT2D                               rerun reads=30 complex
IFFT3D                               rerun reads=40 complex
IRFFT                                rerun reads=20 complex
IRFFT2D                              rerun reads=60 complex
IRFFT3D                              rerun reads=60 complex
Identity                             rerun none folds view=same quiet bits tokens=each
IdentityN                            rerun none folds view=each quiet
If                                   runs=branch nets=then_branch,else_branch
Igamma                               rerun pointwise=210
Igammac                              rerun pointwise=210
Imag                                 rerun pointwise=1 complex
ImageProjectiveTransformV2           rerun moves
ImageProjectiveTransformV3           rerun moves
ImportEvent                          effect=seen
InTopKV2                             rerun reads=1 labelled bits
InitializeTableFromTextFileV2        effect=none
InitializeTableV2                    effect=none
InplaceUpdate                        none view=over
Inv                                  rerun pointwise=1.5
InvGrad                              rerun pointwise=2
Invert                               rerun pointwise=9
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
LeftShift                            rerun pointwise=9
Less                                 rerun pointwise=8 compares=lt bits
LessEqual                            rerun pointwise=8 compares=le bits
Lgamma                               rerun pointwise=80
LinSpace                             rerun moves
ListDiff                             rerun moves counted=0
Log                                  rerun pointwise=6 takes bits
Log1p                                rerun pointwise=6 bits
LogMatrixDeterminant                 rerun solves=0.3
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
LowerBound                           rerun reads=60
Lu                                   rerun solves=0.4
MapPeek                              effect=none
MapSize                              effect=none
MatMul                               rerun product matmul calm
MatrixBandPart                       rerun moves=7
MatrixDeterminant                    rerun solves=0.3
MatrixDiag                           rerun moves=12
MatrixDiagPart                       rerun moves
MatrixDiagPartV3                     rerun moves
MatrixDiagV3                         rerun moves=12
MatrixInverse                        rerun solves=3
MatrixSetDiagV3                      rerun moves
MatrixSolve                          rerun solves=2
MatrixSolveLs                        rerun solves=1
MatrixSquareRoot                     rerun solves=7
MatrixTriangularSolve                rerun solves=0.2
Max                                  rerun reads=1 reduces apart rows skips whole=max bits
MaxPool                              rerun reads=9
MaxPool3D                            rerun reads=9
MaxPool3DGrad                        pure
MaxPoolGrad                          pure reads=11
Maximum                              rerun pointwise=1 whole=max bits
Mean                                 rerun reads=1 reduces rows skips bits
Min                                  rerun reads=1 reduces apart rows skips whole=min bits
Minimum                              rerun pointwise=1 whole=min bits
MirrorPad                            rerun moves=6
MirrorPadGrad                        pure
Mod                                  rerun pointwise=20
Mul                                  rerun pointwise=1 commutes implicit whole=mul bits unit=1
MulNoNan                             rerun pointwise=1 bits
Multinomial                          effect=draws
Ndtri                                rerun pointwise=45
Neg                                  rerun pointwise=1 folds bits
NextAfter                            rerun pointwise=20
NoOp                                 pure quiet
NonDeterministicInts                 effect=draws
NotEqual                             rerun pointwise=8 commutes bits
NthElement                           rerun reads=6
OneHot                               rerun moves rows bits tokens=axes
OnesLike                             rerun moves folds fills in_place=0 bits
OptionalFromValue                    rerun none view=optional list=wrap puts=0 apart quiet
OptionalGetValue                     rerun none view=optional list=unwrap quiet
OptionalHasValue                     rerun none quiet
OptionalNone                         rerun none list=none quiet
OrderedMapPeek                       effect=none
OrderedMapSize                       effect=none
Pack                                 rerun moves
Pad                                  rerun moves skips windows=0
PadV2                                rerun moves skips
ParallelConcat                       rerun moves
ParameterizedTruncatedNormal         effect=draws
PartitionedCall                      runs=call nets=f
Placeholder                          quiet
PlaceholderWithDefault               rerun none view=same hides
Polygamma                            rerun pointwise=12
PopulationCount                      rerun pointwise=3
Pow                                  rerun pointwise=80 exponent=1 bits=columns
PreventGradient                      view=same bits tokens=each
Print                                effect=seen
PrintV2                              effect=seen
Prod                                 rerun reads=1 reduces rows skips whole=prod bits
PyFunc                               effect=seen python
PyFuncStateless                      python
Qr                                   rerun solves=25
QuantizeAndDequantizeV2              rerun reads=6
QuantizeAndDequantizeV3              rerun reads=6
QuantizeAndDequantizeV4              rerun reads=6
QuantizeAndDequantizeV4Grad          pure
QueueIsClosedV2                      effect=none
QueueSizeV2                          effect=none
RFFT                                 rerun reads=12
RFFT2D                               rerun reads=60
RFFT3D                               rerun reads=60
RGBToHSV                             rerun reads=6
RaggedTensorToVariantGradient        pure
RandomCrop                           effect=draws
RandomGamma                          effect=draws
RandomGammaGrad                      pure reads=150
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
Real                                 rerun pointwise=2 complex
RealDiv                              rerun pointwise=1.5 implicit divides bits unit=1
Reciprocal                           rerun pointwise=1.5 bits
ReciprocalGrad                       rerun pointwise=2 bits
Relu                                 rerun pointwise=1 bits
Relu6                                rerun pointwise=1 bits
Relu6Grad                            rerun pointwise=2 bits
ReluGrad                             rerun pointwise=2 sign=1 calm bits
Reshape                              rerun none folds view=same sized=1 calm bits
ResizeBicubic                        rerun moves
ResizeBicubicGrad                    pure
ResizeBilinear                       rerun moves=2
ResizeBilinearGrad                   pure
ResizeNearestNeighbor                rerun moves=7
ResizeNearestNeighborGrad            pure
ResourceApplyAdam                    apart calm
ResourceApplyGradientDescent         apart calm
ResourceApplyKerasMomentum           apart
ResourceCountUpTo                    effect=variable
ResourceGather                       effect=reads row_access each=60 indices=1
ResourceGatherNd                     effect=reads row_access each=40 index_vectors=1
ResourceStridedSliceAssign           effect=variable row_access
Restore                              effect=none
RestoreSlice                         effect=none
RestoreV2                            effect=none
Reverse                              rerun moves
ReverseSequence                      rerun moves=20
ReverseV2                            rerun moves reorders
RightShift                           rerun pointwise=9
Rint                                 rerun pointwise=1 bits
RngReadAndSkip                       effect=variable
RngSkip                              effect=variable
Roll                                 rerun moves=3
Round                                rerun pointwise=1 bits
Rsqrt                                rerun pointwise=1.5 bits
RsqrtGrad                            rerun pointwise=2 bits
SampleDistortedBoundingBox           effect=draws
SampleDistortedBoundingBoxV2         effect=draws
Save                                 effect=seen
SaveSlices                           effect=seen
SaveV2                               effect=seen
ScatterNd                            pure reads=25 sized=2 each=300 index_vectors=0
ScatterNdNonAliasingAdd              pure
SegmentMax                           rerun reads=2 counted=1
SegmentMean                          pure counted=1
SegmentMin                           rerun reads=2 counted=1
SegmentProd                          pure counted=1
SegmentSum                           pure counted=1
Select                               rerun pointwise=2 own_shape alike bits
SelectV2                             rerun pointwise=2 bits finishes
SelfAdjointEigV2                     rerun solves=2
Selu                                 rerun pointwise=8 bits
SeluGrad                             rerun pointwise=2 bits
Shape                                rerun none asks_shape apart
ShapeN                               rerun none asks_shape
Sigmoid                              rerun pointwise=4 bits
SigmoidGrad                          rerun pointwise=2 calm bits
Sign                                 rerun pointwise=1 bits
Sin                                  rerun pointwise=6 takes bits
Sinh                                 rerun pointwise=110 takes bits
Size                                 rerun none asks_shape apart
SleepOp                              effect=none
Slice                                rerun moves slices=0 skips bits
Softmax                              rerun pointwise=4 softmax in_place=0 rows bits=columns starts
SoftmaxCrossEntropyWithLogits        rerun reads=9 cross_entropy apart labelled=repeats bits=columns
Softplus                             rerun pointwise=20 bits
SoftplusGrad                         rerun pointwise=8 bits
Softsign                             rerun pointwise=1.5 bits
SoftsignGrad                         rerun pointwise=2 bits
SpaceToBatch                         rerun moves
SpaceToBatchND                       rerun moves
SpaceToDepth                         rerun moves
SparseSoftmaxCrossEntropyWithLogits  rerun reads=25 cross_entropy apart labelled bits
SparseTensorDenseMatMul              pure
SparseTensorSliceDataset             effect=none
SparseToDense                        pure sized=1
Spence                               rerun pointwise=80
Split                                rerun moves apart slices=1 splits
SplitV                               rerun moves apart slices=0 splits
Sqrt                                 rerun pointwise=1.5 bits
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
StatelessMultinomial                 rerun reads=30
StatelessParameterizedTruncatedNormal rerun pointwise=60 sized=0
StatelessRandomBinomial              rerun pointwise=60 sized=0
StatelessRandomGammaV2               rerun pointwise=60 sized=0
StatelessRandomGammaV3               rerun pointwise=60 sized=0
StatelessRandomGetAlg                effect=none
StatelessRandomGetKeyCounter         rerun pointwise=30 own_shape
StatelessRandomGetKeyCounterAlg      rerun pointwise=30 own_shape
StatelessRandomNormal                rerun pointwise=30 sized=0
StatelessRandomNormalV2              rerun pointwise=30 sized=0
StatelessRandomPoisson               rerun pointwise=60 sized=0
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
StridedSliceGrad                     pure reads=40 apart sized=0 windows=4
Sub                                  rerun pointwise=1 implicit whole=sub bits unit=0
Sum                                  rerun reads=1 reduces apart rows skips whole=sum bits
Svd                                  rerun solves=90
Tan                                  rerun pointwise=75 bits
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
TensorScatterAdd                     pure reads=25 in_place=0 each=300 index_vectors=1
TensorScatterMax                     rerun moves in_place=0 each=300 index_vectors=1
TensorScatterMin                     rerun moves in_place=0 each=300 index_vectors=1
TensorScatterSub                     pure reads=25 in_place=0 each=300 index_vectors=1
TensorScatterUpdate                  rerun moves in_place=0 each=300 index_vectors=1
TensorSliceDataset                   effect=none
TensorStridedSliceUpdate             rerun moves in_place=0
ThreadUnsafeUnigramCandidateSampler  effect=draws
Tile                                 rerun moves repeats skips bits tokens=axes
Timestamp                            effect=none
TopKV2                               rerun reads=20 apart
Transpose                            rerun moves folds rows reorders bits tokens=axes wakes starts
TridiagonalMatMul                    rerun reads=12
TridiagonalSolve                     rerun reads=12
TruncateDiv                          rerun pointwise=3 divides bits
TruncateMod                          rerun pointwise=20
TruncatedNormal                      effect=draws sized=0
UniformCandidateSampler              effect=draws
Unique                               rerun moves counted=0
UniqueV2                             rerun moves counted=0
UniqueWithCounts                     rerun moves counted=0
Unpack                               rerun moves apart slices=0
UnsortedSegmentMax                   rerun reads=25 each=80 indices=1
UnsortedSegmentMin                   rerun reads=25 each=80 indices=1
UnsortedSegmentProd                  pure reads=25 each=80 indices=1
UnsortedSegmentSum                   pure reads=25 sized=2 bits each=80 indices=1
UpperBound                           rerun reads=60
VarHandleOp                          resident
VarIsInitializedOp                   effect=reads
VariableShape                        effect=reads
Where                                rerun reads=12 counted=0
While                                runs=loop nets=cond,body
WriteAudioSummary                    effect=seen
WriteFile                            effect=seen
WriteGraphSummary                    effect=seen
WriteHistogramSummary                effect=seen
WriteImageSummary                    effect=seen
WriteRawProtoSummary                 effect=seen
WriteScalarSummary                   effect=seen
WriteSummary                         effect=seen
Xdivy                                rerun pointwise=2 bits
Xlog1py                              rerun pointwise=12
Xlogy                                rerun pointwise=12 bits=columns
ZerosLike                            rerun moves folds variant=zeros fills in_place=0 bits
Zeta                                 rerun pointwise=450
"""
"""The table: a type, then its words, ``word=value`` where one has a value."""
