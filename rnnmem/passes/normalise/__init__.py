"""Dead code and lists of zeros go before anything is planned."""
