"""TensorFlow's side: trace, import, export, measure. All else plans on Nets and never sees it."""
